package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/restore"
)

type exportOptions struct {
	*options
	to        string
	raw       bool
	overwrite bool
}

func exportCommand() *cobra.Command {
	o := &exportOptions{options: newOptions()}
	cmd := &cobra.Command{
		Use:   "export [KIND[/NAME]] --to DIRECTORY",
		Short: "Write archived objects as YAML files, for kubectl apply or Git",
		Long: `Write archived objects as YAML files into a directory, or with --to - as one stream: of each name the newest. They are manifests for
kubectl apply: without owner references, since these name UIDs that no longer exist, and without finalizers, status and
what the API server sets. With --raw, they are as they were archived.

Files are NAMESPACE/KIND.GROUP_NAME.yaml, and may contain Secrets: only you may read them.` + reading + exitCodes,
		Example: `  gleaner archive export -n shop --to backup
  gleaner archive export deployment/web -n shop --to - | kubectl apply -f -
  gleaner archive export -A --since 1h --identity key.txt --to backup`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.to == "" {
				return exit.Usagef("--to is required: a directory, or - for standard output")
			}
			s, err := o.selection(args, time.Now())
			if err != nil {
				return err
			}
			return o.export(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := o.addTo(cmd, true)
	o.addPeriod(flags)
	flags.StringVar(&o.to, "to", "", "`directory` to write to, which is created if it does not exist; - is standard output")
	flags.BoolVar(&o.raw, "raw", false, "write objects as they were archived")
	flags.BoolVar(&o.overwrite, "overwrite", false, "replace files that exist")
	return cmd
}

func (o *exportOptions) export(ctx context.Context, s selection, out, errOut io.Writer) error {
	identities, err := o.archive.Identities()
	if err != nil {
		return err
	}
	r, err := o.archive.Open(ctx, o.Config)
	if err != nil {
		return err
	}
	defer r.Close()
	headers, corrupt := newest(ctx, r, s)
	if corrupt != nil && !errors.Is(corrupt, archive.ErrCorrupt) {
		return corrupt
	}
	write, done, err := o.writer(out)
	if err != nil {
		return err
	}
	defer done()
	failed := []error{corrupt}
	written := 0
	for _, h := range headers {
		object, err := entries.Object(ctx, r, h, identities)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			err = write(h, o.manifest(object))
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		written++
	}
	printer.Fprintf(errOut, "Exported %s.\n", printer.Count(written, "object", "objects"))
	return errors.Join(failed...)
}

func (o *exportOptions) manifest(object *unstructured.Unstructured) *unstructured.Unstructured {
	if o.raw {
		return object
	}
	return restore.Manifest(object)
}

// writer returns what writes an object, to the directory or the stream.
func (o *exportOptions) writer(out io.Writer) (write func(archive.Header, *unstructured.Unstructured) error, done func(), err error) {
	if o.to == "-" {
		return func(_ archive.Header, object *unstructured.Unstructured) error {
			printer.Fprintln(out, "---")
			return printer.Write(out, "yaml", object.Object)
		}, func() {}, nil
	}
	if err := os.MkdirAll(o.to, 0o700); err != nil {
		return nil, nil, fmt.Errorf("export: %w", err)
	}
	root, err := os.OpenRoot(o.to)
	if err != nil {
		return nil, nil, fmt.Errorf("export: %w", err)
	}
	return func(h archive.Header, object *unstructured.Unstructured) error {
		return o.writeFile(root, fileOf(h.Object), object)
	}, func() { _ = root.Close() }, nil
}

// writeFile writes a file below the directory, whatever its name.
func (o *exportOptions) writeFile(root *os.Root, name string, object *unstructured.Unstructured) error {
	data, err := yaml.Marshal(object.Object)
	if err != nil {
		return fmt.Errorf("export %s: %w", name, err)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("export %s: %w", name, err)
	}
	flag := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if o.overwrite {
		flag = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := root.OpenFile(name, flag, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("export %s: the file exists: use --overwrite", name)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", name, err)
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

// fileOf returns the name of an object's file. Each part is escaped, so that none is another folder.
func fileOf(r archive.Reference) string {
	name := escapePart(r.GroupKind().String()) + "_" + escapePart(r.Name) + ".yaml"
	if r.Namespace == "" {
		return filepath.Join("_cluster", name)
	}
	return filepath.Join(escapePart(r.Namespace), name)
}

func escapePart(text string) string {
	text = url.PathEscape(text) // leaves dots
	if strings.Trim(text, ".") == "" {
		text = strings.ReplaceAll(text, ".", "%2E")
	}
	return text
}
