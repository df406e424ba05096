package s3store

import (
	"context"
	"errors"
	"math/bits"
	"slices"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
	"github.com/gleaner-dev/gleaner/operator/archive/segment"
)

const (
	mergeBytes    = 8 << 20 // of one merged segment
	mergeSegments = 64      // into one
	mergeTier     = 16      // segments of similar size that are merged: each entry is rewritten a few times at most
	mergesPerCall = 32
	maxHorizons   = 8 // above this, what is before the oldest is rewritten
)

// merge rewrites segments that are small, or of which little is left. Those that are corrupt
// stay as they are.
func (s *Store) merge(ctx context.Context) error {
	corrupt := map[uint64]bool{}
	for range mergesPerCall {
		v, err := s.current(ctx)
		if err != nil {
			return err
		}
		inputs, err := s.mergeable(ctx, v, corrupt)
		if err != nil || len(inputs) == 0 {
			return err
		}
		if err := s.mergeInto(ctx, v, inputs, corrupt, nil); err != nil {
			return err
		}
	}
	return nil
}

// mergeable returns the oldest segments to be merged.
func (s *Store) mergeable(ctx context.Context, v *view, corrupt map[uint64]bool) ([]*stored, error) {
	tiers := map[int][]*stored{}
	sizes := map[int]int64{}
	for _, segment := range v.segments {
		a, err := s.left(ctx, segment, v.horizon(segment.number))
		if err != nil {
			return nil, err
		}
		if segment.err != nil || corrupt[segment.number] || a.entries+a.records == 0 {
			continue
		}
		if a.bytes*2 < segment.footer.Bytes || len(v.horizons) > maxHorizons && segment.number < v.horizons[0].Segment {
			return []*stored{segment}, nil
		}
		tier := bits.Len64(uint64(a.bytes)>>16) / 2 // below 64 KiB, 512 KiB, 2 MiB, 8 MiB
		if a.bytes > mergeBytes/2 || sizes[tier]+a.bytes > mergeBytes {
			continue
		}
		tiers[tier] = append(tiers[tier], segment)
		if sizes[tier] += a.bytes; len(tiers[tier]) == mergeSegments {
			return tiers[tier], nil
		}
	}
	for _, inputs := range tiers {
		if len(inputs) >= mergeTier {
			return inputs, nil
		}
	}
	return nil, nil
}

// mergeInto commits what is left of segments as one, without some entries, and deletes them.
func (s *Store) mergeInto(ctx context.Context, v *view, inputs []*stored, corrupt map[uint64]bool, without map[string]bool) error {
	var entries []segment.Entry
	var records []segment.Record
	var replaced []uint64
	var obsolete []*stored
	for _, input := range inputs {
		e, r, err := s.content(ctx, v, input)
		if errors.Is(err, archive.ErrCorrupt) {
			corrupt[input.number] = true
			continue
		}
		if err != nil {
			return err
		}
		e = slices.DeleteFunc(e, func(e segment.Entry) bool { return without[e.ID] })
		entries, records = append(entries, e...), append(records, r...)
		replaced, obsolete = append(replaced, input.number), append(obsolete, input)
	}
	if len(replaced) == 0 {
		return nil
	}
	slices.SortStableFunc(records, func(a, b segment.Record) int { return a.Time.Compare(b.Time) })
	err := s.append(ctx, entries, records, func(_ uint64, f *segment.Footer) { f.Replaces = replaced })
	if err != nil {
		return err
	}
	return s.delete(ctx, obsolete)
}

// content returns what is left of a segment. The error is archive.ErrCorrupt if any of it is.
func (s *Store) content(ctx context.Context, v *view, input *stored) ([]segment.Entry, []segment.Record, error) {
	horizon := v.horizon(input.number)
	rows, err := s.headers(ctx, input)
	if err != nil {
		return nil, nil, err
	}
	bodies, err := s.bucket.slice(ctx, keyOf(input.number), 0, input.footer.HeadersAt)
	if err != nil {
		return nil, nil, err
	}
	var entries []segment.Entry
	for _, row := range rows {
		if removesEntry(horizon, row, input.footer) {
			continue
		}
		if row.Err != nil {
			return nil, nil, row.Err
		}
		e := segment.Entry{Entry: archive.Entry{Header: row.Header, Body: bodies[row.Offset : row.Offset+row.Size]}}
		if err := archive.VerifyBody(e.Header, e.Body); err != nil {
			return nil, nil, err
		}
		if e.Encoded, err = codec.EncodeHeader(e.Header); err != nil {
			return nil, nil, err
		}
		entries = append(entries, e)
	}
	records, err := s.recordsLeft(ctx, input, horizon)
	return entries, records, err
}

func (s *Store) recordsLeft(ctx context.Context, input *stored, horizon segment.Horizon) ([]segment.Record, error) {
	rows, err := s.records(ctx, input)
	if err != nil {
		return nil, err
	}
	var left []segment.Record
	for _, row := range rows {
		if removesRecord(horizon, row, input.footer) {
			continue
		}
		if row.Err != nil {
			return nil, row.Err
		}
		encoded, err := codec.EncodeRecord(row.Record)
		if err != nil {
			return nil, err
		}
		left = append(left, segment.Record{Record: row.Record, Encoded: encoded})
	}
	return left, nil
}
