// Package filestore keeps an archive in a folder, as one bbolt file. One process writes it at a
// time; it can be read while none does.
//
// What was stored is verified when it is read, and the file's structure when it is opened: a
// damaged file is an error, never a panic. A write that a crash interrupted is dropped, and
// Recovered says so.
package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/codec"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore/pagecheck"
	"github.com/gleaner-dev/gleaner/operator/archive/groupcommit"
)

const (
	fileName   = "archive.db"
	writerName = "writer.json"
	format     = 1 // of the buckets
)

// Options configure a store. The zero Options are the defaults.
type Options struct {
	LockTimeout  time.Duration // to wait for another process that has the store open. Default 5s.
	PendingBytes int64         // of what waits to be committed; more waits for room. Default 64 MiB.
}

func (o Options) withDefaults() Options {
	if o.LockTimeout <= 0 {
		o.LockTimeout = 5 * time.Second
	}
	if o.PendingBytes <= 0 {
		o.PendingBytes = 64 << 20
	}
	return o
}

// Bounds of one commit.
const (
	commitItems = 1000
	commitBytes = 16 << 20
)

// A Store is an archive in a folder. Its methods may be called concurrently.
type Store struct {
	dir       string
	db        *bbolt.DB
	recovered string
	commits   *groupcommit.Committer[*write] // nil: read-only

	damaged guard
	closing sync.Once
	closed  error
}

var _ archive.Store = (*Store)(nil)

// Open opens the store of a folder for writing, and creates both if they do not exist. The error
// is archive.ErrReadOnly if another process has it open or the folder cannot be written, and
// archive.ErrCorrupt if the file is damaged.
func Open(dir string, options Options) (*Store, error) {
	options = options.withDefaults()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open archive %s: %w", dir, explain(err))
	}
	s, err := open(dir, false, options.LockTimeout)
	if err != nil {
		return nil, fmt.Errorf("open archive %s: %w", dir, err)
	}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open archive %s: %w", dir, err), s.closeFile())
	}
	s.commits = groupcommit.New(groupcommit.Limits{Items: commitItems, Bytes: commitBytes, PendingBytes: options.PendingBytes}, s.commit)
	return s, nil
}

// OpenReadOnly opens the store of a folder for reading. The error is archive.ErrInUse while a
// process writes it, archive.ErrNotFound if there is none, and archive.ErrCorrupt if it is damaged.
func OpenReadOnly(dir string, options Options) (*Store, error) {
	s, err := open(dir, true, options.withDefaults().LockTimeout)
	if err != nil {
		return nil, fmt.Errorf("open archive %s: %w", dir, err)
	}
	err = s.view(func(tx *bbolt.Tx) error {
		known, err := readFormat(tx)
		if err == nil && !known {
			return fmt.Errorf("%w: nothing was written yet", archive.ErrNotFound)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open archive %s: %w", dir, err), s.closeFile())
	}
	return s, nil
}

// Recovered says what was dropped when the store was opened. Empty: nothing.
func (s *Store) Recovered() string { return s.recovered }

// open locks the file, checks it, and has bbolt open it, in this order.
func open(dir string, readOnly bool, timeout time.Duration) (*Store, error) {
	s := &Store{dir: dir}
	var opened *os.File
	options := &bbolt.Options{
		Timeout: timeout, ReadOnly: readOnly, FreelistType: bbolt.FreelistMapType, NoStatistics: true,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			file, err := os.OpenFile(name, flag, mode)
			if err != nil {
				return nil, err
			}
			opened = file
			if err := s.check(file, !readOnly, timeout); err != nil {
				return nil, errors.Join(err, file.Close())
			}
			return file, nil
		},
	}
	err := s.damaged.run(func() (err error) {
		s.db, err = bbolt.Open(filepath.Join(dir, fileName), 0o600, options)
		return err
	})
	if err != nil {
		if opened != nil {
			_ = opened.Close() // bbolt leaves it open when it panics
		}
		if errors.Is(err, bolterrors.ErrTimeout) {
			return nil, inUse(dir, readOnly)
		}
		return nil, explain(err)
	}
	return s, nil
}

// check locks a file, and checks its pages unless it is new.
func (s *Store) check(file *os.File, exclusive bool, timeout time.Duration) error {
	if locked, err := lock(file, exclusive, timeout); err != nil {
		return fmt.Errorf("lock: %w", err)
	} else if !locked {
		return inUse(s.dir, !exclusive)
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 && exclusive {
		return nil
	}
	report, err := pagecheck.Check(file, info.Size())
	if errors.Is(err, pagecheck.ErrDamaged) {
		return fmt.Errorf("%w: %w: restore it from a backup, or move it away to start with an empty archive", archive.ErrCorrupt, err)
	}
	if err != nil {
		return err
	}
	if report.Torn {
		s.recovered = "the last write was not completed, probably because of a crash, and was dropped; everything that was acknowledged before it is there"
	}
	return nil
}

// prepare makes the buckets, and notes who writes.
func (s *Store) prepare() error {
	err := s.update(func(tx *bbolt.Tx) error {
		known, err := readFormat(tx)
		if err != nil || known {
			return err
		}
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return tx.Bucket(metaBucket).Put(formatKey, codec.WithChecksum([]byte(strconv.Itoa(format))))
	})
	if err != nil {
		return err
	}
	host, _ := os.Hostname() // only for a message
	text, err := json.Marshal(writer{Host: host, PID: os.Getpid(), Since: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, writerName), text, 0o600); err != nil {
		return explain(err)
	}
	return syncDir(s.dir) // which bbolt does not, and the file may be new
}

// readFormat reports whether a file has buckets, in a format that this version knows.
func readFormat(tx *bbolt.Tx) (known bool, err error) {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		if first, _ := tx.Cursor().First(); first != nil {
			return false, fmt.Errorf("%w: %s is not an archive", archive.ErrCorrupt, fileName)
		}
		return false, nil
	}
	value, err := codec.Verified(meta.Get(formatKey))
	if err != nil {
		return false, fmt.Errorf("read format: %w", err)
	}
	version, err := strconv.Atoi(string(value))
	if err != nil {
		return false, fmt.Errorf("read format: %w: %q", archive.ErrCorrupt, value)
	}
	if version > format {
		return false, fmt.Errorf("its format is %d, and this version of gleaner knows %d: use the version that wrote it, or a newer one", version, format)
	}
	return true, nil
}

// Close waits for commits that are under way.
func (s *Store) Close() error {
	s.closing.Do(func() {
		if s.commits != nil {
			s.commits.Close()
			_ = os.Remove(filepath.Join(s.dir, writerName)) // is only for a message
		}
		s.closed = s.closeFile()
	})
	return s.closed
}

// closeFile leaves the file locked until the process ends if a transaction could not be ended
// after a panic in bbolt: closing would wait for it forever.
func (s *Store) closeFile() error {
	if s.damaged.stuck.Load() {
		return nil
	}
	return s.damaged.run(s.db.Close)
}

// explain says what to do about errors of the file system.
func explain(err error) error {
	switch {
	case err == nil, errors.Is(err, archive.ErrReadOnly), errors.Is(err, archive.ErrInUse), errors.Is(err, archive.ErrCorrupt):
		return err
	case isReadOnly(err):
		return fmt.Errorf("%w: %w: let the user that gleaner runs as write to the folder, or mount the volume for writing", archive.ErrReadOnly, err)
	case isFull(err):
		return fmt.Errorf("%w: the disk is full: free space, enlarge the volume, or lower the maximum size of the archive", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", archive.ErrNotFound, err)
	}
	return err
}
