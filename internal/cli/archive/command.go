// Package archive implements gleaner archive: it lists, shows, compares, verifies, prunes and exports
// the entries of an archive.
//
// It restores nothing; gleaner restore does.
package archive

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

// Command returns the command gleaner archive.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "List, show, verify, prune and export archived objects",
		Args:  arguments.RejectUnknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listCommand(), showCommand(), diffCommand(), verifyCommand(), pruneCommand(), exportCommand())
	return cmd
}

const reading = `

The archive is read through the operator, or from its store with --archive, which a file store allows only while no operator
has it open. Through the operator, entries of objects that you may not get are left out.`

const exitCodes = `

Exit codes: 0 on success; 1 for an error; 2 for an invalid command line.`

// options are the flags that select entries.
type options struct {
	*kubectl.Flags
	archive entries.Flags
	uid     string
	cascade string
	since   string
}

func newOptions(outputs ...string) *options { return &options{Flags: kubectl.NewFlags(outputs...)} }

// addTo adds the flags. With identities, the command decrypts.
func (o *options) addTo(cmd *cobra.Command, identities bool) *pflag.FlagSet {
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	flags := cmd.Flags()
	o.archive.AddTo(flags, identities)
	flags.StringVar(&o.uid, "uid", "", "`UID` of a former object")
	return flags
}

// addPeriod adds the flags that select many entries.
func (o *options) addPeriod(flags *pflag.FlagSet) {
	flags.StringVar(&o.cascade, "cascade", "", "select what was deleted because of the former object with this `UID`")
	flags.StringVar(&o.since, "since", "", "select what was archived since this `time`: a duration such as 10m, or a time such as 2026-01-02T03:04:05Z")
}

// A selection selects entries.
type selection struct {
	archive.Query
	isKind func(schema.GroupKind) bool // nil: any
}

func (s selection) matches(h archive.Header) bool {
	return s.isKind == nil || s.isKind(h.Object.GroupKind())
}

// selection returns what the flags and arguments select: TYPE, TYPE/NAME, TYPE NAME or nothing.
func (o *options) selection(args []string, now time.Time) (s selection, err error) {
	if err := errors.Join(o.Validate(), o.archive.Validate()); err != nil {
		return s, err
	}
	s.UID, s.Root = types.UID(o.uid), types.UID(o.cascade)
	if o.since != "" {
		if s.Since, err = entries.ParseSince(o.since, now); err != nil {
			return s, exit.Usagef("--since: %w", err)
		}
	}
	namespaced := true
	if len(args) != 0 {
		word := args[0]
		if len(args) > 1 || strings.Contains(args[0], "/") {
			if word, s.Name, err = kubectl.ParseTarget(args); err != nil {
				return s, err
			}
		}
		var inNamespaces bool
		if s.isKind, inNamespaces = entries.KindMatcher(word, o.Mapping); !inNamespaces {
			namespaced = *o.Namespace != "" // its scope is not known, or it has no namespace
		}
	}
	if o.AllNamespaces || s.UID != "" || s.Root != "" || !namespaced {
		return s, nil
	}
	namespace, err := o.ResolveNamespace()
	s.Namespace = &namespace
	return s, err
}

// Entry returns the entry with an ID.
func Entry(ctx context.Context, r entries.Reader, id string) (archive.Header, error) {
	return one(ctx, r, selection{}, id)
}

// one returns the newest entry that a selection selects, or the entry with an ID.
func one(ctx context.Context, r entries.Reader, s selection, id string) (archive.Header, error) {
	if id != "" {
		at, err := timeOf(id)
		if err != nil {
			return archive.Header{}, exit.Usagef("--id: %w", err)
		}
		s = selection{Query: archive.Query{Since: at, Before: at.Add(1)}}
	}
	var found archive.Header
	err := r.Headers(ctx, s.Query, func(h archive.Header) bool {
		if s.matches(h) && (id == "" || h.ID == id) {
			found = h
		}
		return found.ID == ""
	})
	if found.ID != "" {
		return found, nil
	}
	if err == nil {
		err = archive.ErrNotFound
	}
	return found, fmt.Errorf("find entry: %w; gleaner archive list -A lists all", err)
}

// timeOf returns the time of an entry, with which its ID begins.
func timeOf(id string) (time.Time, error) {
	const digits = 16
	if len(id) < digits {
		return time.Time{}, fmt.Errorf("invalid ID %q: use that of gleaner archive list -o wide", id)
	}
	nanoseconds, err := strconv.ParseInt(id[:digits], 16, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("invalid ID %q: use that of gleaner archive list -o wide", id)
	}
	return time.Unix(0, nanoseconds).UTC(), nil
}
