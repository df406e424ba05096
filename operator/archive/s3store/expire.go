package s3store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/segment"
)

// Expire removes what has expired, and the oldest above the limits. What is removed is a horizon
// in a new segment, so that a writer that was fenced removes nothing. Segments of which
// nothing is left are deleted then, and small or mostly empty ones are merged.
func (s *Store) Expire(ctx context.Context, now time.Time, limits archive.Limits) (entries, records int64, err error) {
	s.expiring.Lock()
	defer s.expiring.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, 0, fmt.Errorf("expire: %w", err)
	}
	entries, records, err = s.moveHorizon(ctx, now, limits)
	if err != nil {
		return 0, 0, fmt.Errorf("expire: %w", err)
	}
	if err := s.deleteEmpty(ctx); err != nil {
		return entries, records, fmt.Errorf("expire: %w", err)
	}
	if err := s.merge(ctx); err != nil {
		return entries, records, fmt.Errorf("expire: merge segments: %w", err)
	}
	return entries, records, nil
}

// moveHorizon commits what is removed, and counts it.
func (s *Store) moveHorizon(ctx context.Context, now time.Time, limits archive.Limits) (entries, records int64, err error) {
	v, err := s.current(ctx)
	if err != nil {
		return 0, 0, err
	}
	before, err := s.total(ctx, v)
	if err != nil {
		return 0, 0, err
	}
	h := segment.Horizon{Segment: v.next, Expired: now}
	if limits.RecordTTL > 0 {
		h.RecordsFrom = now.Add(-limits.RecordTTL + 1) // a record of exactly this age is removed
	}
	after, err := s.total(ctx, v.beyond(h))
	if err != nil {
		return 0, 0, err
	}
	if limits.MaxBytes > 0 && after.bytes > limits.MaxBytes {
		until, err := s.threshold(ctx, v.beyond(h), after.bytes-limits.MaxBytes)
		if err != nil {
			return 0, 0, err
		}
		h = combine(h, segment.Horizon{OldestID: archive.IDPrefix(until.Add(1)), RecordsFrom: until.Add(1)})
		if after, err = s.total(ctx, v.beyond(h)); err != nil {
			return 0, 0, err
		}
	}
	entries, records = before.entries-after.entries, before.records-after.records
	if entries+records == 0 {
		return 0, 0, nil
	}
	// Entries that are committed meanwhile have higher numbers than h, and stay.
	err = s.append(ctx, nil, nil, func(_ uint64, f *segment.Footer) { f.Horizons = s.view.beyond(h).horizons })
	if err != nil {
		return 0, 0, err
	}
	return entries, records, nil
}

// beyond returns a view with one more horizon. Horizons before it that add nothing are left out,
// so that there is mostly one.
func (v *view) beyond(h segment.Horizon) *view {
	w := *v
	w.horizons = nil
	for _, old := range v.horizons {
		switch {
		case !v.any(0, old.Segment, func(f segment.Footer) bool { return f.Entries+f.Records > 0 }):
		case v.any(old.Segment, h.Segment, func(f segment.Footer) bool {
			return f.Entries > 0 && f.MinID < old.OldestID || f.Records > 0 && f.MinRecord.Before(old.RecordsFrom)
		}):
			w.horizons = append(w.horizons, old)
		default: // what came after it is newer than all that it removes
			h = combine(h, old)
		}
	}
	w.horizons = append(w.horizons, h)
	return &w
}

// any reports whether one of the segments from a number on and below another is like this.
func (v *view) any(from, below uint64, like func(segment.Footer) bool) bool {
	return slices.ContainsFunc(v.segments, func(s *stored) bool {
		return s.number >= from && s.number < below && (s.err != nil || like(s.footer))
	})
}

// maxFences is how many fences are kept: a writer that was stopped can be this many behind.
const maxFences = 1000

// deleteEmpty deletes segments of which nothing is left, and those that were merged. The last
// one and fences stay: their numbers must not become free.
func (s *Store) deleteEmpty(ctx context.Context) error {
	v, err := s.current(ctx)
	if err != nil {
		return err
	}
	var empty []*stored
	fences := 0
	for _, segment := range slices.Backward(v.segments) {
		if segment.err != nil || segment.number == v.next-1 {
			continue
		}
		if segment.footer.Fence {
			if fences++; fences <= maxFences {
				continue
			}
		}
		a, err := s.left(ctx, segment, v.horizon(segment.number))
		if err != nil {
			return err
		}
		if a.entries+a.records == 0 {
			empty = append(empty, segment)
		}
	}
	return s.delete(ctx, append(empty, v.obsolete...))
}

// delete deletes segments, which nothing depends on any more. They leave the view first, so that
// no read looks for them. What could not be deleted comes back, because the horizons that
// remove its entries are needed as long as it is there.
func (s *Store) delete(ctx context.Context, segments []*stored) error {
	gone := map[uint64]bool{}
	for _, segment := range segments {
		gone[segment.number] = true
	}
	s.mu.Lock()
	s.view = s.view.without(gone)
	s.mu.Unlock()
	for i, segment := range segments {
		if err := s.bucket.remove(ctx, keyOf(segment.number)); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.view = s.view.with(segments[i:]...)
			return err
		}
	}
	return nil
}
