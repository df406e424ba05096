// Package s3store keeps an archive in S3-compatible storage, as immutable segments that are
// numbered without gaps. A number is taken by creating its object if none is there
// (If-None-Match), which is what keeps writers apart: a new writer takes the next number with a
// higher epoch, and the writer before it fails to, and stops. It needs no clock and no lock, and
// a request that arrives late changes nothing.
//
// It can be read by anyone who may read the bucket, also while it is written.
package s3store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/groupcommit"
	"github.com/gleaner-dev/gleaner/operator/archive/segment"
)

// Options configure a store. The zero Options are the defaults.
type Options struct {
	CommitTimeout time.Duration // of one commit, with retries. Default 1m.
	PendingBytes  int64         // of what waits to be committed; more waits for room. Default 64 MiB.
}

func (o Options) withDefaults() Options {
	if o.CommitTimeout <= 0 {
		o.CommitTimeout = time.Minute
	}
	if o.PendingBytes <= 0 {
		o.PendingBytes = 64 << 20
	}
	return o
}

// Bounds of one commit, and of attempts to take a number.
const (
	commitItems = 1000
	commitBytes = 8 << 20
	takeTries   = 20
)

// A Store writes an archive, and reads it. Its methods may be called concurrently.
type Store struct {
	reading
	options Options
	epoch   uint64
	commits *groupcommit.Committer[*write]

	expiring sync.Mutex // one Expire at a time

	mu        sync.Mutex // covers what follows, and taking a number
	view      *view      // is replaced, not changed
	fenced    error
	uncertain bool // a request to take the next number failed, and may have succeeded
}

var _ archive.Store = (*Store)(nil)

// Open opens the archive below a prefix of a bucket for writing, and stops any other writer of it.
// Credentials, region and endpoint are configured as for other AWS clients.
func Open(ctx context.Context, name, prefix string, options Options) (*Store, error) {
	b, err := openBucket(ctx, name, prefix)
	if err != nil {
		return nil, fmt.Errorf("open archive s3://%s/%s: %w", name, prefix, err)
	}
	s := &Store{options: options.withDefaults()}
	footers := newFooters(b)
	s.reading = reading{bucket: b, blocks: footers.blocks, current: func(context.Context) (*view, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.view, nil
	}}
	if err := s.takeOver(ctx, footers); err != nil {
		return nil, fmt.Errorf("open archive s3://%s/%s: %w", name, prefix, err)
	}
	s.commits = groupcommit.New(groupcommit.Limits{Items: commitItems, Bytes: commitBytes, PendingBytes: s.options.PendingBytes}, s.commit)
	return s, nil
}

// takeOver makes this the only writer: every writer before it has a lower epoch, and fails to
// take the next number.
func (s *Store) takeOver(ctx context.Context, footers *footers) error {
	for range takeTries {
		v, err := footers.load(ctx)
		if err != nil {
			return err
		}
		s.view, s.epoch = v, v.epoch+1
		number := v.next
		fence := segment.Footer{Epoch: s.epoch, Fence: true, Nonce: rand.Text(), Horizons: v.horizons}
		taken, err := s.create(ctx, number, fence, nil, nil)
		if errors.Is(err, errExists) {
			continue // another writer opens it too, or was not stopped yet
		}
		if err != nil {
			return err
		}
		s.view = v.with(taken)
		return s.checkConditions(ctx, number)
	}
	return errors.New("other writers keep taking over: run one replica with this archive, or give each a prefix of its own")
}

// checkConditions makes sure that the storage honors the condition that keeps writers apart:
// creating the fence once more has to fail.
func (s *Store) checkConditions(ctx context.Context, number uint64) error {
	again := segment.Footer{Epoch: s.epoch, Nonce: rand.Text(), Horizons: s.view.horizons}
	_, err := s.create(ctx, number, again, nil, nil)
	switch {
	case errors.Is(err, errExists):
		return nil
	case err == nil:
		return errors.New("the storage ignores If-None-Match, which keeps two writers apart: use storage that supports conditional writes")
	}
	return err
}

// create stores a segment under a number. The error is errExists if another segment has it.
func (s *Store) create(ctx context.Context, number uint64, f segment.Footer, entries []segment.Entry, records []segment.Record) (*stored, error) {
	data, f, err := segment.Build(f, entries, records)
	if err != nil {
		return nil, err
	}
	err = s.bucket.create(ctx, keyOf(number), data)
	if errors.Is(err, errExists) {
		if there, readErr := s.footer(ctx, number); readErr != nil {
			return nil, readErr
		} else if there.footer.Nonce == f.Nonce { // an attempt whose response was lost
			return there, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &stored{number: number, size: int64(len(data)), footer: f}, nil
}

// append commits a segment under the next number. What it contains is visible when it returns nil,
// and never if the error is archive.ErrFenced. Change sets what else is in the footer, for this
// number, and may be nil.
func (s *Store) append(ctx context.Context, entries []segment.Entry, records []segment.Record, change func(number uint64, f *segment.Footer)) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.CommitTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for range takeTries {
		if s.fenced != nil {
			return s.fenced
		}
		number := s.view.next
		f := segment.Footer{Epoch: s.epoch, Nonce: rand.Text(), Horizons: s.view.horizons}
		if change != nil {
			change(number, &f)
		}
		created, err := s.create(ctx, number, f, entries, records)
		if err == nil {
			err = s.certain(ctx, number)
		}
		switch {
		case err == nil:
			s.view = s.view.with(created)
			return nil
		case errors.Is(err, errExists):
			if err := s.occupied(ctx, number); err != nil {
				return err
			}
		default:
			s.uncertain = s.fenced == nil
			return err
		}
	}
	return errors.New("the next numbers are taken")
}

// certain makes sure that no writer has taken over, if a request to take this number failed
// before. Such a request may have succeeded, and the new writer may have merged and deleted the
// segment, so that its number became free again. Its fence is never deleted.
func (s *Store) certain(ctx context.Context, number uint64) error {
	if !s.uncertain {
		return nil
	}
	ahead, err := s.bucket.list(ctx, folder, keyOf(number))
	if err != nil {
		return err
	}
	if len(ahead) > 0 {
		s.fenced = fmt.Errorf("%w: %s is after the segment %x of this writer: run one replica with this prefix", archive.ErrFenced, ahead[0].key, number)
		return errors.Join(s.fenced, s.bucket.remove(ctx, keyOf(number)))
	}
	s.uncertain = false
	return nil
}

// occupied finds out who took a number: this writer, with a request that was thought to have
// failed, or one that has taken over.
func (s *Store) occupied(ctx context.Context, number uint64) error {
	there, err := s.footer(ctx, number)
	if err != nil {
		return err
	}
	if there.err != nil {
		return there.err
	}
	if there.footer.Epoch == s.epoch {
		s.view, s.uncertain = s.view.with(there), false
		return nil
	}
	s.fenced = fmt.Errorf("%w: the archive in bucket %q is written with epoch %d now, and this writer has %d: run one replica with this prefix",
		archive.ErrFenced, s.bucket.name, there.footer.Epoch, s.epoch)
	return s.fenced
}

// Close waits for commits that are under way.
func (s *Store) Close() error {
	s.commits.Close()
	return nil
}
