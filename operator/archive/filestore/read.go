package filestore

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
)

// pageEntries is how many entries or records are read in one transaction. A transaction is not
// open while the caller works, because writers may have to wait for it.
const pageEntries = 200

// Headers yields headers, newest first.
func (s *Store) Headers(ctx context.Context, q archive.Query, yield func(archive.Header) bool) error {
	scan := headerScan{query: q, since: timeBound(q.Since), before: timeBound(q.Before)}
	for !scan.done {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read headers: %w", err)
		}
		var found []archive.Header
		if err := s.view(func(tx *bbolt.Tx) (err error) { found, err = scan.page(tx); return err }); err != nil {
			return fmt.Errorf("read headers: %w", err)
		}
		for _, h := range found {
			if !yield(h) {
				return nil
			}
		}
	}
	return scan.corrupt.err("header")
}

// timeBound returns the lowest ID of a time, or nil for no limit.
func timeBound(t time.Time) []byte {
	if t.IsZero() {
		return nil
	}
	return timeKey(t)
}

// corruption counts what was skipped.
type corruption struct {
	number int
	first  error
}

func (c *corruption) add(err error) {
	if c.number++; c.number == 1 {
		c.first = err
	}
}

func (c *corruption) err(what string) error {
	switch c.number {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 %s was skipped: %w", what, c.first)
	}
	return fmt.Errorf("%d %ss were skipped, the first because of: %w", c.number, what, c.first)
}

// A headerScan reads headers, page by page.
type headerScan struct {
	query         archive.Query
	since, before []byte // IDs; before moves down with each page
	done          bool
	corrupt       corruption
}

// page reads the next headers. It may return none before the scan is done.
func (s *headerScan) page(tx *bbolt.Tx) ([]archive.Header, error) {
	t, err := tablesOf(tx)
	if err != nil {
		return nil, err
	}
	index, prefix := s.index(t)
	c := index.Cursor()
	key := lastBefore(c, prefix, s.before)
	var found []archive.Header
	for range pageEntries {
		if key == nil || !bytes.HasPrefix(key, prefix) {
			s.done = true
			return found, nil
		}
		if id := key[len(prefix):]; len(id) == idSize { // another UID may begin with this one
			if s.since != nil && bytes.Compare(id, s.since) < 0 {
				s.done = true
				return found, nil
			}
			s.before = bytes.Clone(id)
			if h, err := t.header(id); err != nil {
				s.corrupt.add(err)
			} else if s.query.Matches(h) {
				found = append(found, h)
			}
		}
		key, _ = c.Prev()
	}
	return found, nil
}

// index returns where the entries of a query are, and with what their keys begin.
func (s *headerScan) index(t tables) (*bbolt.Bucket, []byte) {
	q := s.query
	switch {
	case q.UID != "":
		return t.uids, uidPrefix(q.UID)
	case q.Group != nil && q.Kind != "" && q.Namespace != nil && q.Name != "":
		return t.places, placePrefix(schema.GroupKind{Group: *q.Group, Kind: q.Kind}, *q.Namespace, q.Name)
	case q.Root != "":
		return t.roots, uidPrefix(q.Root)
	}
	return t.headers, nil
}

// lastBefore moves a cursor to the last key with a prefix that is lower than an ID, or any if
// that is nil.
func lastBefore(c *bbolt.Cursor, prefix, id []byte) []byte {
	if id == nil {
		id = bytes.Repeat([]byte{0xFF}, idSize+1)
	}
	key, _ := c.Seek(append(bytes.Clone(prefix), id...))
	if key == nil {
		key, _ = c.Last()
		return key
	}
	key, _ = c.Prev()
	return key
}

// header returns the header of an entry that an index names.
func (t tables) header(id []byte) (archive.Header, error) {
	stored := t.headers.Get(id)
	if stored == nil {
		return archive.Header{}, fmt.Errorf("entry %x: %w: it is indexed, and has no header", id, archive.ErrCorrupt)
	}
	h, err := codec.DecodeHeader(stored)
	if err != nil {
		return archive.Header{}, fmt.Errorf("entry %x: %w", id, err)
	}
	if h.ID != hex.EncodeToString(id) {
		return archive.Header{}, fmt.Errorf("entry %x: %w: its header is that of %s", id, archive.ErrCorrupt, h.ID)
	}
	return h, nil
}

// Body returns the body of an entry.
func (s *Store) Body(ctx context.Context, h archive.Header) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("read body of %s: %w", h.Object, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	id, digest, err := keysOf(h)
	if err != nil {
		return fail(err)
	}
	var body []byte
	err = s.view(func(tx *bbolt.Tx) error {
		t, err := tablesOf(tx)
		if err != nil {
			return err
		}
		if t.headers.Get(id) == nil {
			return archive.ErrNotFound
		}
		if body = bytes.Clone(t.bodies.Get(digest)); body == nil {
			return fmt.Errorf("%w: it is missing", archive.ErrCorrupt)
		}
		return archive.VerifyBody(h, body)
	})
	if err != nil {
		return fail(err)
	}
	return body, nil
}

// Records yields records, oldest first.
func (s *Store) Records(ctx context.Context, uid types.UID, since, before time.Time, yield func(archive.Record) bool) error {
	scan := recordScan{uid: uid, from: timeBound(since), before: timeBound(before)}
	for !scan.done {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		var found []archive.Record
		if err := s.view(func(tx *bbolt.Tx) (err error) { found, err = scan.page(tx); return err }); err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		for _, r := range found {
			if !yield(r) {
				return nil
			}
		}
	}
	return scan.corrupt.err("record")
}

// A recordScan reads records, page by page.
type recordScan struct {
	uid          types.UID
	from, before []byte // keys; from moves up with each page
	done         bool
	corrupt      corruption
}

func (s *recordScan) page(tx *bbolt.Tx) ([]archive.Record, error) {
	t, err := tablesOf(tx)
	if err != nil {
		return nil, err
	}
	index, prefix := t.records, []byte(nil)
	if s.uid != "" {
		index, prefix = t.recordUIDs, uidPrefix(s.uid)
	}
	c := index.Cursor()
	key, _ := c.Seek(append(bytes.Clone(prefix), s.from...))
	var found []archive.Record
	for range pageEntries {
		if key == nil || !bytes.HasPrefix(key, prefix) {
			s.done = true
			return found, nil
		}
		if k := key[len(prefix):]; len(k) == recordKeySize {
			if s.before != nil && bytes.Compare(k, s.before) >= 0 {
				s.done = true
				return found, nil
			}
			s.from = append(bytes.Clone(k), 0) // what follows it
			if r, err := t.record(k); err != nil {
				s.corrupt.add(err)
			} else {
				found = append(found, r)
			}
		}
		key, _ = c.Next()
	}
	return found, nil
}

func (t tables) record(key []byte) (archive.Record, error) {
	stored := t.records.Get(key)
	if stored == nil {
		return archive.Record{}, fmt.Errorf("record %x: %w: it is indexed and missing", key, archive.ErrCorrupt)
	}
	r, err := codec.DecodeRecord(stored)
	if err != nil {
		return archive.Record{}, fmt.Errorf("record %x: %w", key, err)
	}
	if !bytes.Equal(timeKey(r.Time), key[:8]) {
		return archive.Record{}, fmt.Errorf("record %x: %w: it is of %s", key, archive.ErrCorrupt, r.Time.Format(time.RFC3339Nano))
	}
	return r, nil
}

// Usage returns what the store holds.
func (s *Store) Usage(ctx context.Context) (archive.Usage, error) {
	if err := ctx.Err(); err != nil {
		return archive.Usage{}, fmt.Errorf("read usage: %w", err)
	}
	var result archive.Usage
	err := s.view(func(tx *bbolt.Tx) error {
		t, err := tablesOf(tx)
		if err != nil {
			return err
		}
		u, err := t.usage()
		if err != nil {
			return err
		}
		result = archive.Usage{Entries: u.entries, Records: u.records, Bytes: u.bytes}
		id, stored := t.headers.Cursor().First()
		if id == nil {
			return nil
		}
		h, err := codec.DecodeHeader(stored)
		result.Oldest = h.Time
		return err
	})
	if err != nil {
		return archive.Usage{}, fmt.Errorf("read usage: %w", err)
	}
	return result, nil
}
