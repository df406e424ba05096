package s3store

import (
	"context"
	"errors"
	"fmt"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
	"github.com/gleaner-dev/gleaner/operator/archive/groupcommit"
	"github.com/gleaner-dev/gleaner/operator/archive/segment"
)

// A write is what one call stores, encoded.
type write struct {
	entries []segment.Entry
	records []segment.Record
	err     error // of this write alone, set by its commit
}

// Put stores entries: all of them, or none. Entries that are stored already are left as they are.
func (s *Store) Put(ctx context.Context, entries ...archive.Entry) error {
	w := &write{}
	size := int64(0)
	for _, e := range entries {
		if err := e.Validate(); err != nil {
			return fmt.Errorf("put: %w", err)
		}
		encoded, err := codec.EncodeHeader(e.Header)
		if err != nil {
			return fmt.Errorf("put %s: %w", e.Object, err)
		}
		w.entries = append(w.entries, segment.Entry{Entry: e, Encoded: encoded})
		size += int64(len(encoded) + len(e.Body))
	}
	return s.submit(ctx, "put entries", w, size)
}

// Append stores records: all of them, or none.
func (s *Store) Append(ctx context.Context, records ...archive.Record) error {
	w := &write{}
	size := int64(0)
	for _, r := range records {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		encoded, err := codec.EncodeRecord(r)
		if err != nil {
			return fmt.Errorf("append record of %s: %w", r.UID, err)
		}
		w.records = append(w.records, segment.Record{Record: r, Encoded: encoded})
		size += int64(len(encoded))
	}
	return s.submit(ctx, "append records", w, size)
}

func (s *Store) submit(ctx context.Context, verb string, w *write, size int64) error {
	if len(w.entries)+len(w.records) == 0 {
		return nil
	}
	err := s.commits.Submit(ctx, w, size)
	if errors.Is(err, groupcommit.ErrClosed) {
		return fmt.Errorf("%s: the archive is closed", verb)
	}
	if err == nil {
		err = w.err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}

// commit stores writes in one segment.
func (s *Store) commit(writes []*write) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.options.CommitTimeout) // each caller has a context of its own
	defer cancel()
	var entries []segment.Entry
	var records []segment.Record
	batch := map[string]archive.Header{}
	for _, w := range writes {
		var added []segment.Entry
		w.err = s.retry(ctx, func(v *view) (err error) {
			added, err = s.added(ctx, v, batch, w.entries)
			return err
		})
		if w.err != nil {
			continue
		}
		for _, e := range added {
			batch[e.ID] = e.Header
		}
		entries, records = append(entries, added...), append(records, w.records...)
	}
	if len(entries)+len(records) == 0 {
		return nil
	}
	return s.append(ctx, entries, records, nil)
}

// added returns the entries that are not stored yet. An entry with the ID of another is an error.
func (s *Store) added(ctx context.Context, v *view, batch map[string]archive.Header, entries []segment.Entry) ([]segment.Entry, error) {
	var added []segment.Entry
	own := map[string]archive.Header{}
	for _, e := range entries {
		there, ok := batch[e.ID]
		if !ok {
			there, ok = own[e.ID]
		}
		if !ok {
			_, row, err := s.find(ctx, v, e.ID)
			if err != nil && !errors.Is(err, archive.ErrNotFound) {
				return nil, err
			}
			there, ok = row.Header, err == nil
		}
		if !ok {
			own[e.ID] = e.Header
			added = append(added, e)
		} else if there.Content != e.Content || there.Object != e.Object {
			return nil, fmt.Errorf("entry %s of %s: another entry, of %s, has this ID", e.ID, e.Object, there.Object)
		}
	}
	return added, nil
}
