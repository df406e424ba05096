package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/hostabi"
)

// newModule is what is asked of gleaner module new.
type newModule struct {
	name   string
	lang   string
	hook   string
	folder string
}

func moduleNew() *cobra.Command {
	o := newModule{hook: string(hostabi.HookFinalize)}
	cmd := &cobra.Command{
		Use:   "new --lang go|rego NAME",
		Short: "Write a folder with a module to start from",
		Long: "Write a folder with a module to start from: a finalizer or a policy that works, its tests, and the\n" +
			"resources to apply. The SDK comes along. Nothing that is there already is written to.",
		Example: `  gleaner module new --lang go bucket-cleaner
  gleaner module new --lang rego --hook collect keep-claims`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			if err := o.complete(); err != nil {
				return err
			}
			return o.write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.lang, "lang", "", "go or rego")
	cmd.Flags().StringVar(&o.hook, "hook", o.hook, "finalize, collect or propagate: what the module answers")
	cmd.Flags().StringVar(&o.folder, "dir", "", "`folder` to write; without it, one named NAME")
	return cmd
}

func oneName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageError{fmt.Errorf("%s needs one name, such as %s --lang go bucket-cleaner", cmd.CommandPath(), cmd.CommandPath())}
	}
	return nil
}

var moduleName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// complete checks what was asked for. The name is that of a namespace and of
// other resources as well.
func (o *newModule) complete() error {
	var word any
	err := yaml.Unmarshal([]byte(o.name), &word)
	_, isText := word.(string)
	switch {
	case !moduleName.MatchString(o.name):
		return usageError{fmt.Errorf("the name %q: write up to 63 lower-case letters, digits and '-', beginning with a letter, such as bucket-cleaner", o.name)}
	case err != nil || !isText:
		return usageError{fmt.Errorf("the name %q is no text to YAML: write another, such as %s-things", o.name, o.name)}
	case o.lang == "":
		return usageError{errors.New("--lang is missing: use --lang go or --lang rego")}
	case o.lang != "go" && o.lang != "rego":
		return usageError{fmt.Errorf("--lang=%s: use go or rego", o.lang)}
	case !slices.Contains([]string{"finalize", "collect", "propagate"}, o.hook):
		return usageError{fmt.Errorf("--hook=%s: use finalize, collect or propagate", o.hook)}
	}
	if o.folder == "" {
		o.folder = o.name
	}
	return nil
}

// write fills the folder, which has to be empty or not to be there.
func (o *newModule) write(out io.Writer) error {
	switch entries, err := os.ReadDir(o.folder); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("write a module into %s: %w", o.folder, err)
	case len(entries) != 0:
		return usageError{fmt.Errorf("the folder %s is not empty: name another with --dir", o.folder)}
	}
	files, err := o.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := f.write(o.folder); err != nil {
			return fmt.Errorf("write a module into %s: %w", o.folder, err)
		}
	}
	kubectl.Fprintf(out, "%s has a module in %s that answers %s. Next:\n\n", o.folder, map[string]string{"go": "Go", "rego": "Rego"}[o.lang], o.hook)
	kubectl.Fprintf(out, "  cd %s\n", o.folder)
	if o.lang == "go" {
		kubectl.Fprintf(out, "  go test ./...          # its unit tests\n  gleaner module build   # compiles it\n")
	}
	kubectl.Fprintf(out, "  gleaner test           # asks it what is in cases.yaml\n\nREADME.md says how it gets into a cluster.\n")
	if o.lang == "go" {
		kubectl.Fprintf(out, "Compiled by Go, it barely fits into a ConfigMap, which holds 1 MiB. Before it grows, either make it smaller with\n"+
			"TinyGo (gleaner module build --tinygo), or put it into a registry (gleaner module push).\n")
	}
	return nil
}

// newFile is a file to write; its path is below the folder, with slashes.
type newFile struct {
	path string
	text []byte
}

// write never writes to a file that is there.
func (f newFile) write(folder string) error {
	path := filepath.Join(folder, filepath.FromSlash(f.path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.Write(f.text); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}

// source is the file that decides.
func (o *newModule) source() string {
	switch {
	case o.lang == "rego":
		return "policy.rego"
	case o.hook == string(hostabi.HookFinalize):
		return "finalizer.go"
	default:
		return "policy.go"
	}
}

// sourceTest is the file that tests it.
func (o *newModule) sourceTest() string {
	extension := filepath.Ext(o.source())
	return strings.TrimSuffix(o.source(), extension) + "_test" + extension
}
