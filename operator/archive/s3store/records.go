package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// Records yields records, oldest first.
func (r *reading) Records(ctx context.Context, uid types.UID, since, before time.Time, yield func(archive.Record) bool) error {
	var last time.Time // of what was yielded last, and how many with this time, so that a retry continues
	same, stopped := 0, false
	err := r.retry(ctx, func(v *view) error {
		var corrupt corruption
		var pending []archive.Record
		from, skip := last, same
		flush := func(until time.Time) {
			slices.SortStableFunc(pending, func(a, b archive.Record) int { return a.Time.Compare(b.Time) })
			for len(pending) > 0 && (until.IsZero() || pending[0].Time.Before(until)) && !stopped {
				record := pending[0]
				pending = pending[1:]
				switch {
				case record.Time.Before(from):
					continue
				case skip > 0 && record.Time.Equal(from):
					skip--
					continue
				case record.Time.Equal(last):
					same++
				default:
					last, same = record.Time, 1
				}
				stopped = !yield(record)
			}
		}
		for _, s := range byOldestRecord(v, since, before, &corrupt) {
			if flush(s.footer.MinRecord); stopped {
				return nil
			}
			rows, err := r.records(ctx, s)
			if errors.Is(err, archive.ErrCorrupt) {
				corrupt.add(err)
				continue
			}
			if err != nil {
				return err
			}
			horizon := v.horizon(s.number)
			for _, row := range rows {
				switch record := row.Record; {
				case removesRecord(horizon, row, s.footer):
				case row.Err != nil:
					corrupt.add(fmt.Errorf("segment %x: %w", s.number, row.Err))
				case (uid == "" || uid == record.UID) && !record.Time.Before(since) && (before.IsZero() || record.Time.Before(before)):
					pending = append(pending, record)
				}
			}
		}
		if flush(time.Time{}); stopped {
			return nil
		}
		return corrupt.err()
	})
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	return nil
}

func byOldestRecord(v *view, since, before time.Time, corrupt *corruption) []*stored {
	var found []*stored
	for _, s := range v.segments {
		switch {
		case s.err != nil:
			corrupt.add(fmt.Errorf("segment %x: %w", s.number, s.err))
		case s.footer.Records == 0, s.footer.MaxRecord.Before(since), !before.IsZero() && !s.footer.MinRecord.Before(before):
		default:
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b *stored) int {
		return cmp.Or(a.footer.MinRecord.Compare(b.footer.MinRecord), cmp.Compare(a.number, b.number))
	})
	return found
}
