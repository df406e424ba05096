// Package s3store keeps an archive in S3-compatible storage, as immutable segments that are
// numbered. A number is taken by creating its object if none is there
// (If-None-Match), which is what keeps writers apart: a new writer takes the next number, and the
// writer before it fails to, and stops. It needs no clock and no lock, and a request that arrives
// late changes nothing.
//
// It can be read by anyone who may read the bucket, also while it is written.
package s3store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
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
	writer  string // tells this writer from all others
	epoch   uint64 // above that of all writers before it, for messages
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
	s := &Store{options: options.withDefaults(), writer: rand.Text()}
	footers := newFooters(b)
	s.reading = reading{bucket: b, blocks: footers.blocks, current: func(context.Context) (*view, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.view, nil
	}}
	if err := s.takeOver(ctx, footers); err != nil {
		b.close()
		return nil, fmt.Errorf("open archive s3://%s/%s: %w", name, prefix, err)
	}
	s.commits = groupcommit.New(groupcommit.Limits{Items: commitItems, Bytes: commitBytes, PendingBytes: s.options.PendingBytes}, s.commit)
	return s, nil
}

// skipNumbers is how far ahead of a writer that keeps taking the next number another takes over.
const skipNumbers = 16

// takeOver makes this the only writer: it takes a number with a fence, and all free ones below
// it, so that every writer before it fails to take its next.
func (s *Store) takeOver(ctx context.Context, footers *footers) error {
	for try := range takeTries {
		v, err := footers.load(ctx)
		if err != nil {
			return err
		}
		s.epoch = v.epoch + 1
		fence, number := s.footerOf(v), v.next
		if fence.Fence = true; try > 0 {
			fence.From, number = v.next, v.next+skipNumbers
		}
		_, err = s.create(ctx, number, fence, nil, nil)
		if errors.Is(err, errExists) {
			continue // another writer takes over too, or was not stopped yet
		}
		if err != nil {
			return err
		}
		if err := s.fill(ctx, footers, number); err != nil {
			return err
		}
		if s.view, err = footers.load(ctx); err != nil {
			return err
		}
		s.view = s.view.until(number)
		return s.checkConditions(ctx, number)
	}
	return errors.New("other writers keep taking over: run one replica with this archive, or give each a prefix of its own")
}

// fill takes the numbers that this fence, or one whose writer did not come to it, has skipped.
// It begins with the highest, since a writer that is not stopped yet takes the lowest.
func (s *Store) fill(ctx context.Context, footers *footers, number uint64) error {
	v, err := footers.load(ctx)
	if err != nil {
		return err
	}
	taken := map[uint64]bool{}
	for _, there := range slices.Concat(v.segments, v.obsolete) {
		taken[there.number] = true
	}
	filler := s.footerOf(v)
	filler.Fence = true
	for _, fence := range slices.Backward(v.segments) {
		if fence.footer.From == 0 || fence.number > number {
			continue
		}
		for n := fence.number - 1; n >= fence.footer.From && n+skipNumbers >= fence.number; n-- {
			if taken[n] {
				continue
			}
			if _, err := s.create(ctx, n, filler, nil, nil); err != nil && !errors.Is(err, errExists) {
				return err
			}
		}
	}
	return nil
}

// footerOf returns the footer of a segment of this writer, with a nonce of its own.
func (s *Store) footerOf(v *view) segment.Footer {
	return segment.Footer{Writer: s.writer, Epoch: s.epoch, Nonce: rand.Text(), Horizons: v.horizons}
}

// checkConditions makes sure that the storage honors the condition that keeps writers apart:
// creating the fence once more has to fail.
func (s *Store) checkConditions(ctx context.Context, number uint64) error {
	_, err := s.create(ctx, number, s.footerOf(s.view), nil, nil)
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
		f := s.footerOf(s.view)
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
	if there.footer.Writer == s.writer {
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
	s.bucket.close()
	return nil
}
