package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

// A list is what gleaner archive list prints.
type list struct {
	printer.Document `json:",inline"`
	Items            []archive.Header `json:"items"`
	More             bool             `json:"more,omitempty"` // there are older ones, above --limit
}

func listCommand() *cobra.Command {
	o := newOptions("json", "yaml", "wide", "name")
	limit := 0
	cmd := &cobra.Command{
		Use:   "list [KIND[/NAME]]",
		Short: "List archived objects, the newest first",
		Long:  "List archived objects, the newest first: in a namespace, or with -A in all of them and cluster-scoped ones." + reading + exitCodes,
		Example: `  gleaner archive list -n shop
  gleaner archive list configmaps -A --since 1h
  gleaner archive list deployment/web -n shop -o wide
  gleaner archive list --cascade 0f3c8d1e-…`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := o.selection(args, time.Now())
			if err != nil {
				return err
			}
			if limit < 0 {
				return exit.Usagef("--limit=%d: use 0 or more", limit)
			}
			return o.list(cmd.Context(), s, limit, cmd.OutOrStdout())
		},
	}
	flags := o.addTo(cmd, false)
	o.addPeriod(flags)
	flags.IntVar(&limit, "limit", 500, "maximum `number` of entries; 0 is unlimited")
	return cmd
}

func (o *options) list(ctx context.Context, s selection, limit int, out io.Writer) error {
	r, err := o.archive.Open(ctx, o.Config)
	if err != nil {
		return err
	}
	defer r.Close()
	found := list{Document: printer.DocumentOf("ArchiveEntryList"), Items: []archive.Header{}}
	readErr := r.Headers(ctx, s.Query, func(h archive.Header) bool {
		if !s.matches(h) {
			return true
		}
		if found.More = limit != 0 && len(found.Items) == limit; !found.More {
			found.Items = append(found.Items, h)
		}
		return !found.More
	})
	if readErr != nil && !errors.Is(readErr, archive.ErrCorrupt) {
		return readErr
	}
	return errors.Join(found.write(out, o.Output), readErr) // others are listed
}

func (l list) write(out io.Writer, format string) error {
	switch format {
	case "json", "yaml":
		return printer.Write(out, format, l)
	case "name":
		for _, h := range l.Items {
			printer.Fprintln(out, objectOf(h.Object))
		}
		return nil
	}
	if len(l.Items) == 0 {
		printer.Fprintln(out, "No entries found.")
		return nil
	}
	t := printer.Table{Header: []string{"NAMESPACE", "OBJECT", "ARCHIVED", "DELETED BY", "REASON", "UID"}}
	if format == "wide" {
		t.Header = append(t.Header, "POLICY", "CASCADE", "EXPIRES", "BYTES", "RECIPIENTS", "ID")
	}
	for _, h := range l.Items {
		t.Add(row(h, format == "wide")...)
	}
	if err := t.Write(out, printer.PaletteFor(out)); err != nil {
		return err
	}
	if l.More {
		printer.Fprintf(out, "There are older entries: use --limit=0 to list all.\n")
	}
	return nil
}

func row(h archive.Header, wide bool) []printer.Cell {
	fields := []string{h.Object.Namespace, objectOf(h.Object), moment(h.Time), string(h.Cause.By), h.Cause.Reason, string(h.Object.UID)}
	if wide {
		recipients := ""
		if h.Recipients != 0 {
			recipients = fmt.Sprint(h.Recipients)
		}
		fields = append(fields, h.Cause.Policy, string(h.Cause.Root), moment(h.Expires), fmt.Sprint(h.Size), recipients, h.ID)
	}
	cells := make([]printer.Cell, len(fields))
	for i, text := range fields {
		cells[i].Text = text
	}
	return cells
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// objectOf returns an object as kubectl accepts it.
func objectOf(r archive.Reference) string {
	return strings.ToLower(r.GroupKind().String()) + "/" + r.Name
}

// newest returns the newest entry of each object that a selection selects.
func newest(ctx context.Context, r entries.Reader, s selection) ([]archive.Header, error) {
	var found []archive.Header
	known := map[string]struct{}{}
	err := entries.Each(ctx, r, s.Query, func(h archive.Header) {
		key := h.Object.GroupKind().String() + " " + h.Object.Namespace + "/" + h.Object.Name
		if _, older := known[key]; !older && s.matches(h) {
			known[key] = struct{}{}
			found = append(found, h)
		}
	})
	return found, err
}
