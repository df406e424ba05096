package archive

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

type pruneOptions struct {
	*options
	before   string
	maxBytes string
	expired  bool
	dryRun   bool
	yes      bool
}

func pruneCommand() *cobra.Command {
	o := &pruneOptions{options: newOptions()}
	cmd := &cobra.Command{
		Use:   "prune [KIND[/NAME]] --archive LOCATION --before TIME | --uid UID | --max-bytes SIZE | --expired",
		Short: "Remove entries from an archive",
		Long: `Remove entries from the store of an archive: those before a time or of a former object, those that have expired, or the oldest above
a size. Removed entries can't be restored. Entries that are selected are listed first, and removed after confirmation.

--before applies to all namespaces and cluster-scoped objects, unless -n is set.

Stop the operator first. A file store that it has open can't be pruned; a bucket can, but the operator can't write to it any more
until it is started again, and holds the objects that it can't archive.` + exitCodes,
		Example: `  gleaner archive prune --archive file:///var/lib/gleaner/archive --before 720h --dry-run
  gleaner archive prune --archive file:///var/lib/gleaner/archive --uid 0f3c8d1e-…
  gleaner archive prune --archive file:///var/lib/gleaner/archive --max-bytes 10Gi --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := o.addTo(cmd, false)
	flags.StringVar(&o.before, "before", "", "remove what was archived before this `time`: a duration such as 720h, or a time such as 2026-01-02T03:04:05Z")
	flags.StringVar(&o.maxBytes, "max-bytes", "", "remove the oldest entries and records until the rest has at most this `size`, as a quantity such as 10Gi")
	flags.BoolVar(&o.expired, "expired", false, "remove the entries that have expired")
	flags.BoolVar(&o.dryRun, "dry-run", false, "list what would be removed, and remove nothing")
	flags.BoolVar(&o.yes, "yes", false, "don't ask for confirmation")
	return cmd
}

// nothingRemoved is what follows from a no.
const nothingRemoved = "Nothing was removed."

func (o *pruneOptions) prompt(in io.Reader, out io.Writer) printer.Prompt {
	return printer.Prompt{In: in, Out: out, Yes: o.yes}
}

func (o *pruneOptions) run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	given := 0
	for _, is := range []bool{o.before != "", o.uid != "", o.maxBytes != "", o.expired} {
		if is {
			given++
		}
	}
	if given != 1 {
		return exit.Usagef("specify exactly one of --before, --uid, --max-bytes and --expired")
	}
	if o.maxBytes != "" || o.expired {
		return o.expire(ctx, args, in, out)
	}
	if *o.Namespace == "" {
		o.AllNamespaces = true
	}
	s, err := o.selection(args, time.Now())
	if err == nil && o.before != "" {
		if s.Before, err = entries.ParseSince(o.before, time.Now()); err != nil {
			err = exit.Usagef("--before: %w", err)
		}
	}
	if err != nil {
		return err
	}
	return o.remove(ctx, s, in, out)
}

// remove removes chosen entries.
func (o *pruneOptions) remove(ctx context.Context, s selection, in io.Reader, out io.Writer) error {
	found, err := o.read(ctx, s)
	if err != nil {
		return err
	}
	if err := (list{Items: found}).write(out, ""); err != nil || len(found) == 0 || o.dryRun {
		return err
	}
	o.warnIfShared(out)
	question := fmt.Sprintf("Remove %s, which can't be restored then?", printer.Count(len(found), "entry", "entries"))
	if confirmed, err := o.prompt(in, out).Confirm(question, nothingRemoved); err != nil || !confirmed {
		return err
	}
	store, err := o.archive.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	ids := make([]string, len(found))
	for i, h := range found {
		ids[i] = h.ID
	}
	n, err := store.Remove(ctx, ids...)
	printer.Fprintf(out, "Removed %s.\n", printer.Count(int(n), "entry", "entries"))
	return err
}

// read reads the headers that a selection selects. The store is closed again: it is not to be locked
// while a person is asked.
func (o *pruneOptions) read(ctx context.Context, s selection) (found []archive.Header, err error) {
	r, err := o.archive.OpenStoreForReading(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	err = entries.Each(ctx, r, s.Query, func(h archive.Header) {
		if s.matches(h) {
			found = append(found, h)
		}
	})
	return found, err
}

// warnIfShared says what removing entries means to an operator that is running.
func (o *pruneOptions) warnIfShared(out io.Writer) {
	if o.archive.Shared() {
		printer.Fprintln(out, "An operator that is running can't write to this archive any more until it is started again.")
	}
}

// expire removes expired entries, and the oldest above a size.
func (o *pruneOptions) expire(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 0 || *o.Namespace != "" || o.AllNamespaces {
		return exit.Usagef("--max-bytes and --expired apply to the whole archive: omit KIND, -n and -A")
	}
	var limits archive.Limits
	if o.maxBytes != "" {
		size, err := resource.ParseQuantity(o.maxBytes)
		if err != nil || size.Value() < 1 {
			return exit.Usagef("--max-bytes=%s: use a quantity of at least 1, such as 10Gi", o.maxBytes)
		}
		limits.MaxBytes = size.Value()
	}
	usage, err := o.usage(ctx)
	if err != nil {
		return err
	}
	question := "Remove the entries that have expired?"
	o.warnIfShared(out)
	printer.Fprintf(out, "The archive has %d entries and %d records with %d bytes; the oldest entry is of %s.\n", usage.Entries, usage.Records, usage.Bytes, moment(usage.Oldest))
	if limits.MaxBytes != 0 {
		excess := max(usage.Bytes-limits.MaxBytes, 0)
		printer.Fprintf(out, "%d bytes are above --max-bytes.\n", excess)
		question = fmt.Sprintf("Remove the oldest %d bytes, and the entries that have expired?", excess)
	}
	if o.dryRun {
		return nil
	}
	if confirmed, err := o.prompt(in, out).Confirm(question, nothingRemoved); err != nil || !confirmed {
		return err
	}
	store, err := o.archive.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	n, records, err := store.Expire(ctx, time.Now(), limits)
	printer.Fprintf(out, "Removed %s and %s.\n", printer.Count(int(n), "entry", "entries"), printer.Count(int(records), "record", "records"))
	return err
}

func (o *pruneOptions) usage(ctx context.Context) (archive.Usage, error) {
	r, err := o.archive.OpenStoreForReading(ctx)
	if err != nil {
		return archive.Usage{}, err
	}
	defer r.Close()
	return r.Usage(ctx)
}
