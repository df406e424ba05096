package filestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
	"github.com/gleaner-dev/gleaner/operator/archive/groupcommit"
)

// A write is what one call stores, encoded.
type write struct {
	entries []archive.Entry
	headers [][]byte // of the entries
	records []archive.Record
	encoded [][]byte // the records
	err     error    // of this write alone, set by its commit
}

// Put stores entries: all of them, or none. Entries that are stored already are left as they are.
func (s *Store) Put(ctx context.Context, entries ...archive.Entry) error {
	w := &write{entries: entries}
	size := int64(0)
	for _, e := range entries {
		if err := e.Validate(); err != nil {
			return fmt.Errorf("put: %w", err)
		}
		header, err := codec.EncodeHeader(e.Header)
		if err != nil {
			return fmt.Errorf("put %s: %w", e.Object, err)
		}
		w.headers = append(w.headers, header)
		size += int64(len(header) + len(e.Body))
	}
	return s.submit(ctx, "put entries", w, size)
}

// Append stores records: all of them, or none.
func (s *Store) Append(ctx context.Context, records ...archive.Record) error {
	w := &write{records: records}
	size := int64(0)
	for _, r := range records {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		encoded, err := codec.EncodeRecord(r)
		if err != nil {
			return fmt.Errorf("append record of %s: %w", r.UID, err)
		}
		w.encoded = append(w.encoded, encoded)
		size += int64(len(encoded))
	}
	return s.submit(ctx, "append records", w, size)
}

func (s *Store) submit(ctx context.Context, verb string, w *write, size int64) error {
	if s.commits == nil {
		return fmt.Errorf("%s: %w: the archive was opened for reading", verb, archive.ErrReadOnly)
	}
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

// commit stores writes in one transaction.
func (s *Store) commit(writes []*write) error {
	return s.update(func(tx *bbolt.Tx) error {
		t, err := tablesOf(tx)
		if err != nil {
			return err
		}
		u, err := t.usage()
		if err != nil {
			return err
		}
		for _, w := range writes {
			if w.err = t.conflict(w.entries); w.err != nil {
				continue
			}
			if err := t.store(w, &u); err != nil {
				return err
			}
		}
		return t.setUsage(u)
	})
}

// conflict reports entries whose ID another entry has.
func (t tables) conflict(entries []archive.Entry) error {
	for _, e := range entries {
		id, _, err := keysOf(e.Header)
		if err != nil {
			return err
		}
		stored := t.headers.Get(id)
		if stored == nil {
			continue
		}
		h, err := codec.DecodeHeader(stored)
		if err != nil {
			return fmt.Errorf("entry %s: %w", e.ID, err)
		}
		if h.Content != e.Content || h.Object != e.Object {
			return fmt.Errorf("entry %s of %s: another entry, of %s, has this ID", e.ID, e.Object, h.Object)
		}
	}
	return nil
}

func (t tables) store(w *write, u *usage) error {
	for i, e := range w.entries {
		if err := t.storeEntry(e, w.headers[i], u); err != nil {
			return err
		}
	}
	for i, r := range w.records {
		if err := t.storeRecord(r, w.encoded[i], u); err != nil {
			return err
		}
	}
	return nil
}

func (t tables) storeEntry(e archive.Entry, header []byte, u *usage) error {
	id, digest, err := keysOf(e.Header)
	if err != nil {
		return err
	}
	if t.headers.Get(id) != nil {
		return nil
	}
	// A damaged body is replaced, so that what this call acknowledges can be read back.
	if body := t.bodies.Get(digest); !bytes.Equal(body, e.Body) {
		u.bytes += int64(len(e.Body) - len(body))
		if err := t.bodies.Put(digest, e.Body); err != nil {
			return err
		}
	}
	if err := t.headers.Put(id, header); err != nil {
		return err
	}
	keys, err := t.indexes(e.Header)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := k.index.Put(k.key, nil); err != nil {
			return err
		}
	}
	u.entries++
	return nil
}

func (t tables) storeRecord(r archive.Record, encoded []byte, u *usage) error {
	sequence, err := t.records.NextSequence()
	if err != nil {
		return err
	}
	key := binary.BigEndian.AppendUint64(timeKey(r.Time), sequence)
	if err := t.records.Put(key, encoded); err != nil {
		return err
	}
	if r.UID != "" {
		if err := t.recordUIDs.Put(append(uidPrefix(r.UID), key...), nil); err != nil {
			return err
		}
	}
	u.records++
	u.bytes += int64(len(encoded))
	return nil
}
