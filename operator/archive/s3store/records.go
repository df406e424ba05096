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
	m := &recordMerge{uid: uid, since: since, before: before, yield: yield}
	if err := r.retry(ctx, func(v *view) error { return r.mergeRecords(ctx, v, m) }); err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	return nil
}

// A recordMerge yields records in order. It continues after a retry.
type recordMerge struct {
	uid           types.UID
	since, before time.Time
	yield         func(archive.Record) bool

	pending []archive.Record
	last    time.Time // of what was yielded last
	same    int       // how many of this time were yielded
	stopped bool

	from time.Time // where a retry continues
	skip int       // of this time
}

// restart begins with a new view.
func (m *recordMerge) restart() { m.pending, m.from, m.skip = nil, m.last, m.same }

// flush yields what is before a time, and everything if that is zero.
func (m *recordMerge) flush(until time.Time) {
	slices.SortStableFunc(m.pending, func(a, b archive.Record) int { return a.Time.Compare(b.Time) })
	for len(m.pending) > 0 && (until.IsZero() || m.pending[0].Time.Before(until)) && !m.stopped {
		record := m.pending[0]
		m.pending = m.pending[1:]
		switch {
		case record.Time.Before(m.from):
			continue
		case m.skip > 0 && record.Time.Equal(m.from):
			m.skip--
			continue
		case record.Time.Equal(m.last):
			m.same++
		default:
			m.last, m.same = record.Time, 1
		}
		m.stopped = !m.yield(record)
	}
}

// selects reports whether a record is of the object and the period.
func (m *recordMerge) selects(r archive.Record) bool {
	return (m.uid == "" || m.uid == r.UID) && !r.Time.Before(m.since) && (m.before.IsZero() || r.Time.Before(m.before))
}

func (r *reading) mergeRecords(ctx context.Context, v *view, m *recordMerge) error {
	var corrupt corruption
	m.restart()
	for _, s := range byOldestRecord(v, m, &corrupt) {
		if m.flush(s.footer.MinRecord); m.stopped {
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
			switch {
			case removesRecord(horizon, row, s.footer):
			case row.Err != nil:
				corrupt.add(fmt.Errorf("segment %x: %w", s.number, row.Err))
			case m.selects(row.Record):
				m.pending = append(m.pending, row.Record)
			}
		}
	}
	if m.flush(time.Time{}); m.stopped {
		return nil
	}
	return corrupt.err()
}

// byOldestRecord returns the segments that may have records of the object and the period.
func byOldestRecord(v *view, m *recordMerge, corrupt *corruption) []*stored {
	var found []*stored
	for _, s := range v.segments {
		switch {
		case s.err != nil:
			corrupt.add(fmt.Errorf("segment %x: %w", s.number, s.err))
		case !s.footer.MayHaveRecordsOf(string(m.uid)), s.footer.MaxRecord.Before(m.since), !m.before.IsZero() && !s.footer.MinRecord.Before(m.before):
		default:
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b *stored) int {
		return cmp.Or(a.footer.MinRecord.Compare(b.footer.MinRecord), cmp.Compare(a.number, b.number))
	})
	return found
}
