package filestore

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// A guard turns panics of bbolt into errors: a file may be damaged after it was checked. After
// one, nothing is written any more, since the state of bbolt is unknown.
type guard struct {
	panicked atomic.Bool
	stuck    atomic.Bool // a transaction for writing could not be ended
}

// run calls f. Faults are errors too: the file is mapped into memory, and may have been truncated.
func (g *guard) run(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			g.panicked.Store(true)
			err = fmt.Errorf("%w: read pages: %v", archive.ErrCorrupt, p)
		}
	}()
	return f()
}

// view runs a transaction for reading. What f keeps of it must be copied.
func (s *Store) view(f func(*bbolt.Tx) error) error {
	return s.damaged.run(func() error { return explain(s.db.View(f)) })
}

// update runs a transaction for writing, and commits it if f returns nil.
func (s *Store) update(f func(*bbolt.Tx) error) error {
	if s.db.IsReadOnly() {
		return archive.ErrReadOnly
	}
	if s.damaged.panicked.Load() {
		return fmt.Errorf("%w: the file was damaged while it was open: restart, and restore it from a backup if that fails", archive.ErrCorrupt)
	}
	var tx *bbolt.Tx
	ended := false
	err := s.damaged.run(func() (err error) {
		if tx, err = s.db.Begin(true); err != nil {
			return err
		}
		if err = f(tx); err != nil {
			return err
		}
		err = tx.Commit()
		ended = err == nil
		return err
	})
	if tx == nil || ended {
		return explain(err)
	}
	back := s.damaged.run(tx.Rollback) // also after a commit that failed, if it did not roll back
	if back != nil && errors.Is(back, archive.ErrCorrupt) {
		s.damaged.stuck.Store(true)
	}
	return explain(err)
}
