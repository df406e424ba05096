// Package history reads decision records: of the operator, from its memory and its archive, or of an
// archive's store, without an operator.
//
// It prints nothing and writes nothing.
package history

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/recordlog"
)

// maxLookups is the maximum number of owners whose deletions are looked up for one command.
const maxLookups = 100_000

// Read reads records of the operator, or of the store that the flags name. Config is called only for
// the operator. It is not an error if there is no operator, or if some replicas can't be read.
func Read(ctx context.Context, f *entries.Flags, config func() (*rest.Config, error), s replicas.Selection) (replicas.Records, error) {
	if f.Location() == "" {
		return fromOperator(ctx, f, config, s)
	}
	store, err := f.OpenStoreForReading(ctx)
	if errors.Is(err, archive.ErrInUse) {
		err = fmt.Errorf("%w; while the operator runs, omit --archive to read through it", err)
	}
	if err != nil {
		return replicas.Records{}, fmt.Errorf("open archive: %w", err)
	}
	found, err := FromStore(ctx, store, f.Location(), s)
	return found, errors.Join(err, store.Close())
}

func fromOperator(ctx context.Context, f *entries.Flags, config func() (*rest.Config, error), s replicas.Selection) (replicas.Records, error) {
	c, err := config()
	if err != nil {
		return replicas.Records{}, err
	}
	all, err := replicas.Find(ctx, f.Operator(c))
	if err != nil {
		return replicas.Records{}, err
	}
	defer replicas.Close(all)
	return replicas.QueryRecords(ctx, all, s), ctx.Err()
}

// FromStore reads records of a store with a name. Records that are corrupt are missing, which the
// result says.
func FromStore(ctx context.Context, store archive.Reader, name string, s replicas.Selection) (replicas.Records, error) {
	read := recordlog.Reader{Archive: store}.Entries
	found := replicas.Records{Queried: []string{name}}
	lookup := record.Lookup{Entries: read, Max: maxLookups}
	newest := replicas.Newest{Limit: s.Limit}
	err := read(ctx, s.Object.UID, s.Since, s.Before, func(e record.Entry) bool {
		if !s.MayMatch(e) {
			return true
		}
		if !s.Exchanges {
			e = e.WithoutExchanges()
		}
		if s.NeedsChain() {
			e = lookup.Extend(ctx, e)
		}
		if s.Matches(e) {
			newest.Add(e)
		}
		return true
	})
	if errors.Is(err, archive.ErrCorrupt) {
		found.Unreachable, err = []replicas.Unreachable{{Replica: name, Reason: err.Error()}}, nil
	}
	if err != nil {
		return found, fmt.Errorf("read archive: %w", err)
	}
	found.Entries, found.Older = newest.Entries(), newest.Older
	err = read(ctx, "", time.Time{}, time.Time{}, func(e record.Entry) bool {
		found.Since = &e.Time
		return false
	})
	if err != nil && !errors.Is(err, archive.ErrCorrupt) {
		return found, fmt.Errorf("read archive: %w", err)
	}
	return found, nil
}
