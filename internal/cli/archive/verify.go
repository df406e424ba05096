package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

// A verification is what gleaner archive verify prints.
type verification struct {
	printer.Document `json:",inline"`
	Entries          int       `json:"entries"`
	Bytes            int64     `json:"bytes"`  // of the bodies that were read
	Sealed           int       `json:"sealed"` // encrypted ones of which only the checksum was verified
	Corrupt          []problem `json:"corrupt"`
	Headers          string    `json:"corruptHeaders,omitempty"` // which are not known otherwise
}

// A problem is an entry that can't be restored.
type problem struct {
	archive.Header `json:",inline"`
	Problem        string `json:"problem"`
}

func verifyCommand() *cobra.Command {
	o := newOptions("json", "yaml")
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read every entry and verify its checksum",
		Long: "Read every entry of all namespaces, or of that of -n, and verify that it can be restored: the checksum of its body, and that this is\n" +
			"the object of its header. Of encrypted entries that no --identity decrypts, only the checksum is verified." + reading +
			"\n\nExit codes: 0 if all entries are intact; 1 if some are corrupt, or for an error; 2 for an invalid command line.",
		Example: `  gleaner archive verify
  gleaner archive verify --archive file:///var/lib/gleaner/archive --identity key.txt`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 0 {
				return exit.Usagef("%s does not take arguments, got %q", cmd.CommandPath(), args[0])
			}
			if *o.Namespace == "" {
				o.AllNamespaces = true
			}
			s, err := o.selection(nil, time.Now())
			if err != nil {
				return err
			}
			return o.verify(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addTo(cmd, true)
	return cmd
}

func (o *options) verify(ctx context.Context, s selection, out, errOut io.Writer) error {
	identities, err := o.archive.Identities()
	if err != nil {
		return err
	}
	r, err := o.archive.Open(ctx, o.Config)
	if err != nil {
		return err
	}
	defer r.Close()
	var step printer.Step
	over := step.Show(errOut)
	defer over()
	v, err := verify(ctx, r, s, identities, func(v *verification) { step.Set(fmt.Sprintf("Verified %d entries", v.Entries)) })
	over()
	if err != nil {
		return err
	}
	if err := v.write(out, o.Output); err != nil {
		return err
	}
	if len(v.Corrupt) != 0 || v.Headers != "" {
		return exit.Error{Code: exit.CodeFailure}
	}
	return nil
}

// verify reads the body of each entry.
func verify(ctx context.Context, r entries.Reader, s selection, identities []age.Identity, done func(*verification)) (*verification, error) {
	v := &verification{Document: printer.DocumentOf("ArchiveVerification"), Corrupt: []problem{}}
	var failed error
	err := r.Headers(ctx, s.Query, func(h archive.Header) bool {
		if failed = v.add(ctx, r, h, identities); failed == nil {
			done(v)
		}
		return failed == nil && ctx.Err() == nil
	})
	switch {
	case failed != nil:
		return nil, failed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, archive.ErrCorrupt):
		v.Headers = err.Error()
	case err != nil:
		return nil, err
	}
	return v, nil
}

// add verifies one entry. The error means that it could not be read, not that it is corrupt.
func (v *verification) add(ctx context.Context, r entries.Reader, h archive.Header, identities []age.Identity) error {
	v.Entries++
	body, err := r.Body(ctx, h)
	switch {
	case errors.Is(err, archive.ErrCorrupt), errors.Is(err, archive.ErrNotFound):
		v.Corrupt = append(v.Corrupt, problem{h, err.Error()})
		return nil
	case err != nil:
		return err
	}
	v.Bytes += int64(len(body))
	if err = archive.VerifyBody(h, body); err == nil {
		_, err = archive.Open(h, body, identities...)
	}
	switch {
	case errors.Is(err, archive.ErrIdentity):
		v.Sealed++
	case err != nil:
		v.Corrupt = append(v.Corrupt, problem{h, err.Error()})
	}
	return nil
}

func (v *verification) write(out io.Writer, format string) error {
	if format != "" {
		return printer.Write(out, format, v)
	}
	if len(v.Corrupt) != 0 {
		t := printer.Table{Header: []string{"NAMESPACE", "OBJECT", "ARCHIVED", "PROBLEM", "ID"}}
		for _, c := range v.Corrupt {
			t.Add(printer.Cell{Text: c.Object.Namespace}, printer.Cell{Text: objectOf(c.Object)}, printer.Cell{Text: moment(c.Time)},
				printer.Cell{Text: c.Problem, Color: printer.Bad}, printer.Cell{Text: c.ID})
		}
		if err := t.Write(out, printer.PaletteFor(out)); err != nil {
			return err
		}
	}
	if v.Headers != "" {
		printer.Fprintf(out, "Some headers are corrupt: %s\n", v.Headers)
	}
	printer.Fprintf(out, "Verified %s with %d bytes: %d corrupt.\n", printer.Count(v.Entries, "entry", "entries"), v.Bytes, len(v.Corrupt))
	if v.Sealed != 0 {
		printer.Fprintf(out, "Of %d, which are encrypted, only the checksum was verified: use --identity to verify their content.\n", v.Sealed)
	}
	return nil
}
