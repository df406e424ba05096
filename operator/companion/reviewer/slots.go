package reviewer

import (
	"context"
	"sync"
	"time"
)

const (
	// maxReviews is how many reviews may be in progress in one replica. The built-in
	// collector has 20 workers by default, and Gleaner two replicas: a namespace may have
	// half of the reviews in each, and so half of the workers.
	maxReviews = 10

	// maxSlotWait is how long a review waits for others of its namespace.
	maxSlotWait = 25 * time.Millisecond
)

// slots limits reviews in progress. Each occupies a worker of the built-in collector, and
// takes up to Timeout if a module is slow. So a namespace may start a review only while it
// has fewer in progress than there are free slots: one with slow modules occupies half of
// the slots, the next one half of the rest. Its other reviews are answered without an
// evaluation.
//
// The zero value is ready to use. Its methods may be called concurrently.
type slots struct {
	mu         sync.Mutex // covers the fields below
	busy       int
	namespaces map[string]int
	released   chan struct{} // closed at the next release; nil if no review waits
}

// acquire waits for a slot for a short time. The caller must call release if ok.
func (s *slots) acquire(ctx context.Context, namespace string) (release func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, maxSlotWait)
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
func (s *slots) take(namespace string) (released <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces[namespace] >= maxReviews-s.busy {
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

func (s *slots) release(namespace string) {
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
