package s3store

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// Remove implements archive.Store. Segments that have the entries are rewritten without them. Entries in a segment that is
// partly corrupt stay, and the error is archive.ErrCorrupt.
func (s *Store) Remove(ctx context.Context, ids ...string) (entries int64, err error) {
	chosen := map[string]bool{}
	for _, id := range ids {
		if _, err := hex.DecodeString(id); err != nil {
			return 0, fmt.Errorf("remove entry %q: invalid ID", id)
		}
		chosen[id] = true
	}
	s.expiring.Lock()
	defer s.expiring.Unlock()
	v, err := s.current(ctx)
	if err != nil {
		return 0, fmt.Errorf("remove entries: %w", err)
	}
	removed := map[string]bool{}
	var errs error
	for _, segment := range v.segments {
		found, err := s.chosenIn(ctx, v, segment, chosen)
		if err == nil && len(found) != 0 {
			corrupt := map[uint64]bool{}
			if err = s.mergeInto(ctx, v, []*stored{segment}, corrupt, chosen); corrupt[segment.number] {
				err = fmt.Errorf("segment %x is partly %w, so its entries were not removed: run gleaner archive verify to see which are affected", segment.number, archive.ErrCorrupt)
			}
		}
		switch {
		case errors.Is(err, archive.ErrCorrupt):
			errs = errors.Join(errs, err)
			continue
		case err != nil:
			return int64(len(removed)), fmt.Errorf("remove entries: %w", errors.Join(errs, err))
		}
		for _, id := range found {
			removed[id] = true
		}
	}
	if errs != nil {
		errs = fmt.Errorf("remove entries: %w", errs)
	}
	return int64(len(removed)), errs
}

// chosenIn returns the chosen entries that are left in a segment.
func (s *Store) chosenIn(ctx context.Context, v *view, in *stored, chosen map[string]bool) (found []string, err error) {
	if !in.readable() {
		return nil, nil
	}
	rows, err := s.headers(ctx, in)
	if err != nil {
		return nil, err
	}
	horizon := v.horizon(in.number)
	for _, row := range rows {
		if row.Err == nil && chosen[row.Header.ID] && !removesEntry(horizon, row, in.footer) {
			found = append(found, row.Header.ID)
		}
	}
	return found, nil
}
