// Package groupcommit commits together what concurrent callers submit: while one commit is
// under way, more is collected for the next. It bounds what waits in memory.
//
// It does not know what is committed, and does not retry.
package groupcommit

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"
)

// ErrClosed is returned for what is submitted after Close.
var ErrClosed = errors.New("closed")

// Limits bound a Committer. All must be above 0.
type Limits struct {
	Items        int   // of one commit
	Bytes        int64 // of one commit; a single larger item is committed alone
	PendingBytes int64 // waiting or being committed; others wait for room
}

// A Committer commits items one group after the other. Its methods may be called concurrently.
type Committer[T any] struct {
	commit  func([]T) error
	limits  Limits
	pending *semaphore.Weighted
	queue   chan submission[T] // unbuffered: nothing is left in it by Close
	stop    chan struct{}
	stopped chan struct{} // closed when the last commit has ended
	once    sync.Once
}

type submission[T any] struct {
	item   T
	size   int64
	result chan error // buffered: the caller may have stopped waiting
}

// New returns a Committer that calls commit from one goroutine. It ends with Close.
func New[T any](limits Limits, commit func([]T) error) *Committer[T] {
	c := &Committer[T]{
		commit: commit, limits: limits, pending: semaphore.NewWeighted(limits.PendingBytes),
		queue: make(chan submission[T]), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go c.run()
	return c
}

// Submit returns when an item of this size in bytes was committed, with the error of its commit.
// If the context ends first, the item may still be committed.
func (c *Committer[T]) Submit(ctx context.Context, item T, size int64) error {
	weight := min(max(size, 1), c.limits.PendingBytes)
	if err := c.pending.Acquire(ctx, weight); err != nil {
		return err
	}
	s := submission[T]{item: item, size: weight, result: make(chan error, 1)}
	select {
	case c.queue <- s: // the committer releases its bytes
	case <-c.stop:
		c.pending.Release(weight)
		return ErrClosed
	case <-ctx.Done():
		c.pending.Release(weight)
		return ctx.Err()
	}
	select {
	case err := <-s.result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits for the commit that is under way. What is not part of it is refused.
func (c *Committer[T]) Close() {
	c.once.Do(func() { close(c.stop) })
	<-c.stopped
}

func (c *Committer[T]) run() {
	defer close(c.stopped)
	var next *submission[T] // was received, and did not fit into the last group
	for {
		if next == nil {
			select {
			case s := <-c.queue:
				next = &s
			case <-c.stop:
				return
			}
		}
		var group []submission[T]
		group, next = c.collect(*next)
		c.finish(group)
	}
}

// collect returns what can be committed together with first, without waiting for more, and
// what it received that does not fit.
func (c *Committer[T]) collect(first submission[T]) (group []submission[T], rest *submission[T]) {
	group = append(group, first)
	size := first.size
	for len(group) < c.limits.Items {
		select {
		case s := <-c.queue:
			if size += s.size; size > c.limits.Bytes {
				return group, &s
			}
			group = append(group, s)
		default:
			return group, nil
		}
	}
	return group, nil
}

func (c *Committer[T]) finish(group []submission[T]) {
	items := make([]T, len(group))
	for i, s := range group {
		items[i] = s.item
	}
	err := c.commit(items)
	for _, s := range group {
		c.pending.Release(s.size)
		s.result <- err
	}
}
