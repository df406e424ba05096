package filestore

import (
	"context"
	"encoding/hex"
	"fmt"

	"go.etcd.io/bbolt"
)

// Remove implements archive.Store.
func (s *Store) Remove(ctx context.Context, ids ...string) (entries int64, err error) {
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		if keys[i], err = hex.DecodeString(id); err != nil || len(keys[i]) != idSize {
			return 0, fmt.Errorf("remove entry %q: invalid ID", id)
		}
	}
	for len(keys) > 0 {
		if err := ctx.Err(); err != nil {
			return entries, fmt.Errorf("remove entries: %w", err)
		}
		batch := keys[:min(len(keys), expireItems)]
		var removed int64
		err := s.update(func(tx *bbolt.Tx) (err error) {
			removed, err = removeEntries(tx, batch)
			return err
		})
		if err != nil {
			return entries, fmt.Errorf("remove entries: %w", err)
		}
		entries, keys = entries+removed, keys[len(batch):]
	}
	return entries, nil
}

func removeEntries(tx *bbolt.Tx, ids [][]byte) (int64, error) {
	t, err := tablesOf(tx)
	if err != nil {
		return 0, err
	}
	r := &removal{tables: t}
	if r.stored, err = t.usage(); err != nil {
		return 0, err
	}
	for _, id := range ids {
		if err := r.entry(id); err != nil {
			return 0, err
		}
	}
	return r.removed.entries, r.setUsage(r.stored)
}
