package s3store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/segment"
)

const (
	folder      = "segments/"
	parallelism = 16 // requests at the same time, of one call
)

func keyOf(number uint64) string { return fmt.Sprintf("%s%016x", folder, number) }

func numberOf(key string) (uint64, bool) {
	digits, ok := strings.CutPrefix(key, folder)
	number, err := strconv.ParseUint(digits, 16, 64)
	return number, ok && err == nil && keyOf(number) == key && number != math.MaxUint64
}

// stored is a segment in the bucket.
type stored struct {
	number uint64
	size   int64
	footer segment.Footer
	err    error // archive.ErrCorrupt: the footer is not set
}

// readable reports whether the footer is set.
func (s *stored) readable() bool { return s.err == nil }

// A view is which segments are there, and what has been removed from them. It does not change.
type view struct {
	segments []*stored // by number, without those that others replace
	obsolete []*stored // replaced, and not deleted yet
	horizons []segment.Horizon
	epoch    uint64 // the highest
	next     uint64 // number that is free
}

// newView makes a view of all segments in the bucket.
func newView(all []*stored) *view {
	v := &view{}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *stored) int { return cmp.Compare(a.number, b.number) })
	replaced := map[uint64]bool{}
	for _, s := range all {
		for _, number := range s.footer.Replaces {
			replaced[number] = true
		}
		if s.err == nil {
			v.horizons, v.epoch = s.footer.Horizons, max(v.epoch, s.footer.Epoch)
		}
		v.next = s.number + 1
	}
	for _, s := range all {
		if replaced[s.number] {
			v.obsolete = append(v.obsolete, s)
		} else {
			v.segments = append(v.segments, s)
		}
	}
	return v
}

// with returns a view with more segments.
func (v *view) with(more ...*stored) *view {
	return newView(slices.Concat(v.segments, v.obsolete, more))
}

// without returns a view from which segments were deleted. The number that is free stays.
func (v *view) without(gone map[uint64]bool) *view {
	left := slices.DeleteFunc(slices.Concat(v.segments, v.obsolete), func(s *stored) bool { return gone[s.number] })
	w := newView(left)
	w.next, w.horizons, w.epoch = v.next, v.horizons, v.epoch
	return w
}

// until returns a view as if nothing had a number above this one, which is taken.
func (v *view) until(number uint64) *view {
	w := newView(slices.DeleteFunc(slices.Concat(v.segments, v.obsolete), func(s *stored) bool { return s.number > number }))
	w.next = number + 1
	return w
}

// horizon returns what has been removed from a segment, by all horizons after it.
func (v *view) horizon(number uint64) segment.Horizon {
	var sum segment.Horizon
	for _, h := range v.horizons {
		if h.Segment > number {
			sum = combine(sum, h)
		}
	}
	return sum
}

// combine returns what either horizon removes.
func combine(a, b segment.Horizon) segment.Horizon {
	return segment.Horizon{
		Segment: max(a.Segment, b.Segment), OldestID: max(a.OldestID, b.OldestID),
		Expired: latest(a.Expired, b.Expired), RecordsFrom: latest(a.RecordsFrom, b.RecordsFrom),
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// removesEntry reports whether a horizon removes a row of a segment. Of a corrupt one, it is
// only known that it is not newer than the segment's newest.
func removesEntry(h segment.Horizon, row segment.Row, f segment.Footer) bool {
	if row.Err != nil {
		return f.MaxID < h.OldestID
	}
	expires := row.Header.Expires
	return row.Header.ID < h.OldestID || !expires.IsZero() && !expires.After(h.Expired)
}

func removesRecord(h segment.Horizon, row segment.RecordRow, f segment.Footer) bool {
	if row.Err != nil {
		return f.MaxRecord.Before(h.RecordsFrom)
	}
	return row.Record.Time.Before(h.RecordsFrom)
}

// footers loads views, and remembers the footers of segments, which do not change.
type footers struct {
	bucket *bucket
	blocks *blocks
	mu     sync.Mutex // one load at a time
	known  map[uint64]*stored
}

func newFooters(b *bucket) *footers {
	return &footers{bucket: b, blocks: newBlocks(), known: map[uint64]*stored{}}
}

func (f *footers) load(ctx context.Context) (*view, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	listed, err := f.bucket.list(ctx, folder, "")
	if err != nil {
		return nil, err
	}
	var numbers []uint64
	for _, o := range listed {
		if number, ok := numberOf(o.key); ok {
			numbers = append(numbers, number)
		}
	}
	all := make([]*stored, len(numbers))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelism)
	for i, number := range numbers {
		if all[i] = f.known[number]; all[i] != nil {
			continue
		}
		group.Go(func() (err error) {
			all[i], err = readFooter(ctx, f.bucket, f.blocks, number)
			if errors.Is(err, archive.ErrNotFound) { // deleted since it was listed
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s *stored) bool { return s == nil })
	f.known = map[uint64]*stored{}
	for _, s := range all {
		f.known[s.number] = s
	}
	return newView(all), nil
}

// readFooter reads the end of a segment, which often has its headers and records too.
func readFooter(ctx context.Context, b *bucket, cache *blocks, number uint64) (*stored, error) {
	tail, size, err := b.tail(ctx, keyOf(number), segment.TailBytes)
	if err != nil {
		return nil, err
	}
	s := &stored{number: number, size: size}
	s.footer, s.err = segment.ReadFooter(tail, size)
	if s.err != nil && !errors.Is(s.err, archive.ErrCorrupt) {
		return nil, fmt.Errorf("segment %x: %w", number, s.err)
	}
	if start := size - int64(len(tail)); s.err == nil && s.footer.HeadersAt >= start {
		cache.put(number, tail[s.footer.HeadersAt-start:s.footer.FooterAt-start])
	}
	return s, nil
}
