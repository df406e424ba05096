// Package slots limits reviews of admission requests that are in progress, so that no namespace occupies all of
// what answers them.
package slots

import (
	"context"
	"sync"
	"time"
)

// Slots limits reviews in progress. Each takes up to a timeout if a module is slow. So a namespace may start a
// review only while it has fewer in progress than there are free slots: one with slow modules occupies half of the
// slots, the next one half of the rest. Its other reviews are answered without an evaluation.
//
// Create it with New. Its methods may be called concurrently.
type Slots struct {
	most int
	wait time.Duration

	mu         sync.Mutex // covers the fields below
	busy       int
	namespaces map[string]int
	released   chan struct{} // closed at the next release; nil if no review waits
}

// New returns Slots for a number of reviews. A review waits for others of its namespace for at most a time.
func New(most int, wait time.Duration) *Slots { return &Slots{most: most, wait: wait} }

// Acquire waits for a slot for a short time. The caller must call release if ok.
func (s *Slots) Acquire(ctx context.Context, namespace string) (release func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	for {
		released, ok := s.take(namespace)
		if ok {
			return func() { s.release(namespace) }, true
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-released:
		}
	}
}

// take takes a slot if the namespace may have one now; otherwise it returns a channel that
// is closed at the next release.
func (s *Slots) take(namespace string) (released <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces[namespace] >= s.most-s.busy {
		if s.released == nil {
			s.released = make(chan struct{})
		}
		return s.released, false
	}
	if s.namespaces == nil {
		s.namespaces = map[string]int{}
	}
	s.busy++
	s.namespaces[namespace]++
	return nil, true
}

func (s *Slots) release(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if s.namespaces[namespace]--; s.namespaces[namespace] == 0 {
		delete(s.namespaces, namespace)
	}
	if s.released != nil {
		close(s.released)
		s.released = nil
	}
}
