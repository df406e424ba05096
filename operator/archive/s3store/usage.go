package s3store

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/segment"
)

// amount is what is left of a segment.
type amount struct {
	entries, records, bytes int64
	oldestID                string // empty: no entry
}

func (a *amount) add(b amount) {
	a.entries, a.records, a.bytes = a.entries+b.entries, a.records+b.records, a.bytes+b.bytes
	if a.oldestID == "" || b.oldestID != "" && b.oldestID < a.oldestID {
		a.oldestID = b.oldestID
	}
}

// Usage returns what the store holds. Segments that cannot be read are counted with nothing.
func (r *reading) Usage(ctx context.Context) (archive.Usage, error) {
	var total amount
	err := r.retry(ctx, func(v *view) (err error) {
		total, err = r.total(ctx, v)
		return err
	})
	if err != nil {
		return archive.Usage{}, fmt.Errorf("read usage: %w", err)
	}
	u := archive.Usage{Entries: total.entries, Records: total.records, Bytes: total.bytes}
	u.Oldest = timeOf(total.oldestID)
	return u, nil
}

func (r *reading) total(ctx context.Context, v *view) (amount, error) {
	var total amount
	for _, s := range v.segments {
		a, err := r.left(ctx, s, v.horizon(s.number))
		if err != nil {
			return amount{}, err
		}
		total.add(a)
	}
	return total, nil
}

// left returns what a horizon leaves of a segment. Only if that is a part, it is read.
func (r *reading) left(ctx context.Context, s *stored, h segment.Horizon) (amount, error) {
	f := s.footer
	someExpired := !f.MinExpires.IsZero() && !f.MinExpires.After(h.Expired)
	switch {
	case !s.readable():
		return amount{}, nil
	case f.MinID >= h.OldestID && !someExpired && !f.MinRecord.Before(h.RecordsFrom), f.Entries+f.Records == 0:
		return amount{entries: f.Entries, records: f.Records, bytes: f.Bytes, oldestID: f.MinID}, nil
	case f.MaxID < h.OldestID && (f.Records == 0 || f.MaxRecord.Before(h.RecordsFrom)):
		return amount{}, nil
	}
	items, err := r.items(ctx, s, h)
	if errors.Is(err, archive.ErrCorrupt) { // it stays until all of it is removed
		return amount{entries: f.Entries, records: f.Records, bytes: f.Bytes, oldestID: f.MinID}, nil
	}
	if err != nil {
		return amount{}, err
	}
	var a amount
	for _, i := range items {
		a.bytes += i.size
		if i.id == "" {
			a.records++
			continue
		}
		a.add(amount{entries: 1, oldestID: i.id})
	}
	return a, nil
}

// An item is an entry or a record, and the bytes that its removal frees.
type item struct {
	time time.Time
	id   string // empty: a record
	size int64
}

// items returns what a horizon leaves of a segment. The size of a body that several entries
// have is that of the newest.
func (r *reading) items(ctx context.Context, s *stored, h segment.Horizon) ([]item, error) {
	rows, err := r.headers(ctx, s)
	if err != nil {
		return nil, err
	}
	records, err := r.records(ctx, s)
	if err != nil {
		return nil, err
	}
	var items []item
	for _, row := range rows {
		if removesEntry(h, row, s.footer) {
			continue
		}
		i := item{time: row.Header.Time, id: row.Header.ID}
		if row.Err != nil {
			i = item{time: timeOf(s.footer.MaxID), id: s.footer.MaxID}
		}
		items = append(items, i)
	}
	shareBodies(items, rows, h, s.footer)
	for _, row := range records {
		if removesRecord(h, row, s.footer) {
			continue
		}
		i := item{time: row.Record.Time, size: row.Size}
		if row.Err != nil {
			i.time = s.footer.MaxRecord
		}
		items = append(items, i)
	}
	return items, nil
}

// shareBodies sets the sizes of entries, in the order of their rows.
func shareBodies(items []item, rows []segment.Row, h segment.Horizon, f segment.Footer) {
	newest := map[int64]int{} // by the offset of the body
	at := 0
	for _, row := range rows {
		if removesEntry(h, row, f) {
			continue
		}
		if other, ok := newest[row.Offset]; !ok || items[other].id < items[at].id {
			if ok {
				items[other].size = 0
			}
			newest[row.Offset], items[at].size = at, row.Size
		}
		at++
	}
}

// timeOf returns the time of an ID.
func timeOf(id string) time.Time {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) < 8 {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(raw))).UTC()
}

// threshold returns the time up to which the oldest have to be removed to free this many bytes.
func (r *reading) threshold(ctx context.Context, v *view, need int64) (time.Time, error) {
	segments := slices.DeleteFunc(slices.Clone(v.segments), func(s *stored) bool {
		return s.err != nil || s.footer.Entries+s.footer.Records == 0
	})
	slices.SortFunc(segments, func(a, b *stored) int { return a.oldest().Compare(b.oldest()) })
	var items []item
	var until time.Time
	for i, s := range segments {
		more, err := r.items(ctx, s, v.horizon(s.number))
		if errors.Is(err, archive.ErrCorrupt) {
			more = []item{{time: s.newest(), size: s.footer.Bytes}} // all of it, or nothing
		} else if err != nil {
			return until, err
		}
		items = append(items, more...)
		slices.SortFunc(items, func(a, b item) int { return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.id, b.id)) })
		freed := int64(0)
		for _, it := range items {
			if until, freed = it.time, freed+it.size; freed >= need {
				break
			}
		}
		if freed >= need && (i+1 == len(segments) || segments[i+1].oldest().After(until)) {
			break
		}
	}
	return until, nil
}

// oldest returns the time of the oldest entry or record.
func (s *stored) oldest() time.Time {
	entry, record := timeOf(s.footer.MinID), s.footer.MinRecord
	if s.footer.Entries == 0 || s.footer.Records > 0 && record.Before(entry) {
		return record
	}
	return entry
}

func (s *stored) newest() time.Time {
	if s.footer.Entries == 0 {
		return s.footer.MaxRecord
	}
	return latest(timeOf(s.footer.MaxID), s.footer.MaxRecord)
}
