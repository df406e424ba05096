package filestore

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
)

// expireItems is how many entries and records are removed in one transaction: what is put waits
// for it.
const expireItems = 200

// Expire removes what has expired, and the oldest above the limits. Headers and records that are
// corrupt are removed when their time comes, and those above the limits too.
func (s *Store) Expire(ctx context.Context, now time.Time, limits archive.Limits) (entries, records int64, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return entries, records, fmt.Errorf("expire: %w", err)
		}
		var r *removal
		err := s.update(func(tx *bbolt.Tx) (err error) {
			r, err = removeExpired(tx, now, limits)
			return err
		})
		if err != nil {
			return entries, records, fmt.Errorf("expire: %w", err)
		}
		entries, records = entries+r.removed.entries, records+r.removed.records
		if r.steps == 0 {
			return entries, records, nil
		}
	}
}

// A removal removes entries and records in one transaction.
type removal struct {
	tables
	stored  usage
	removed usage
	steps   int
}

// next reports whether there is room for another step, and counts it.
func (r *removal) next() bool {
	if r.steps == expireItems {
		return false
	}
	r.steps++
	return true
}

func removeExpired(tx *bbolt.Tx, now time.Time, limits archive.Limits) (*removal, error) {
	t, err := tablesOf(tx)
	if err != nil {
		return nil, err
	}
	r := &removal{tables: t}
	if r.stored, err = t.usage(); err != nil {
		return nil, err
	}
	if err := r.expiredEntries(now); err != nil {
		return nil, err
	}
	if err := r.expiredRecords(now, limits.RecordTTL); err != nil {
		return nil, err
	}
	if err := r.oldest(limits.MaxBytes); err != nil {
		return nil, err
	}
	return r, r.setUsage(r.stored)
}

func (r *removal) expiredEntries(now time.Time) error {
	end := timeKey(now)
	for {
		key, _ := r.expiry.Cursor().First()
		if len(key) != 8+idSize || bytes.Compare(key[:8], end) > 0 || !r.next() {
			return nil
		}
		key = bytes.Clone(key)
		if err := r.entry(key[8:]); err != nil {
			return err
		}
		if err := r.expiry.Delete(key); err != nil { // is still there if it has no entry
			return err
		}
	}
}

func (r *removal) expiredRecords(now time.Time, ttl time.Duration) error {
	if ttl <= 0 {
		return nil
	}
	end := timeKey(now.Add(-ttl))
	for {
		key, value := r.records.Cursor().First()
		if len(key) < 8 || bytes.Compare(key[:8], end) > 0 || !r.next() {
			return nil
		}
		if err := r.recordAt(bytes.Clone(key), value); err != nil {
			return err
		}
	}
}

// oldest removes the oldest entries and records until the rest has at most this many bytes.
func (r *removal) oldest(maximum int64) error {
	for maximum > 0 && r.stored.bytes > maximum {
		id, _ := r.headers.Cursor().First()
		key, value := r.records.Cursor().First()
		if id == nil && key == nil || !r.next() {
			return nil
		}
		var err error
		if key == nil || id != nil && bytes.Compare(id, key) <= 0 {
			err = r.entry(bytes.Clone(id))
		} else {
			err = r.recordAt(bytes.Clone(key), value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entry removes an entry, and its body if no other entry has it.
func (r *removal) entry(id []byte) error {
	stored := r.headers.Get(id)
	if stored == nil {
		return nil
	}
	h, corrupt := codec.DecodeHeader(stored)
	if corrupt == nil && h.ID != hex.EncodeToString(id) {
		corrupt = archive.ErrCorrupt
	}
	if err := r.headers.Delete(id); err != nil {
		return err
	}
	r.stored.entries--
	r.removed.entries++
	if corrupt != nil {
		return r.unindexAll(id)
	}
	keys, err := r.indexes(h)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := k.index.Delete(k.key); err != nil {
			return err
		}
	}
	_, digest, err := keysOf(h)
	if err != nil {
		return err
	}
	return r.body(digest)
}

// unindexAll removes an entry from all indexes without knowing its keys there. It reads all of
// them, which only a corrupt header makes necessary.
func (r *removal) unindexAll(id []byte) error {
	for _, index := range []*bbolt.Bucket{r.contents, r.uids, r.roots, r.places, r.expiry} {
		var keys [][]byte
		err := index.ForEach(func(key, _ []byte) error {
			if bytes.HasSuffix(key, id) {
				keys = append(keys, bytes.Clone(key))
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := index.Delete(key); err != nil {
				return err
			}
			if index == r.contents && len(key) == digestSize+idSize {
				if err := r.body(key[:digestSize]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// body removes a body that no entry has.
func (r *removal) body(digest []byte) error {
	if other, _ := r.contents.Cursor().Seek(digest); bytes.HasPrefix(other, digest) {
		return nil
	}
	r.stored.bytes -= int64(len(r.bodies.Get(digest)))
	return r.bodies.Delete(digest)
}

func (r *removal) recordAt(key, value []byte) error {
	r.stored.records--
	r.removed.records++
	r.stored.bytes -= int64(len(value))
	record, corrupt := codec.DecodeRecord(value)
	if err := r.records.Delete(key); err != nil {
		return err
	}
	if corrupt == nil {
		return r.recordUIDs.Delete(append(uidPrefix(record.UID), key...))
	}
	return r.unindexRecord(key)
}

// unindexRecord removes a record from the index without knowing its UID.
func (r *removal) unindexRecord(key []byte) error {
	c := r.recordUIDs.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if bytes.HasSuffix(k, key) {
			return r.recordUIDs.Delete(bytes.Clone(k))
		}
	}
	return nil
}
