package gather

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxReads is how many owners are read at the same time, including reads that
	// nobody waits for any more.
	maxReads = 32

	// maxNamespaceReads is how many of those may be for the objects of one namespace.
	maxNamespaceReads = 8
)

// slots bound how many reads run at the same time: in total, and for the objects of
// one namespace. Namespaces that wait take turns. Its methods may be called
// concurrently.
type slots struct {
	total, each int // maximums

	mu      sync.Mutex // covers what follows
	used    int
	by      map[string]int             // slots used, by namespace
	waiting map[string][]chan struct{} // closed when a slot is granted; in order of arrival
	turns   []string                   // the namespaces in waiting; the first is next
}

func newSlots(total, each int) *slots {
	return &slots{total: total, each: each, by: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// acquire waits for a slot for as long as ctx lasts. Whoever gets one releases it.
func (s *slots) acquire(ctx context.Context, namespace string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	granted := s.enqueue(namespace)
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
		s.withdraw(namespace, granted)
		return ctx.Err()
	}
}

func (s *slots) enqueue(namespace string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	granted := make(chan struct{})
	if len(s.waiting[namespace]) == 0 {
		s.turns = append(s.turns, namespace)
	}
	s.waiting[namespace] = append(s.waiting[namespace], granted)
	s.grant()
	return granted
}

// withdraw gives up waiting, or the slot that was granted at the same moment.
func (s *slots) withdraw(namespace string, granted chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting[namespace], granted); i >= 0 {
		s.setWaiting(namespace, slices.Delete(s.waiting[namespace], i, i+1))
		return
	}
	s.free(namespace)
}

func (s *slots) release(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(namespace)
}

func (s *slots) free(namespace string) {
	s.used--
	if s.by[namespace]--; s.by[namespace] == 0 {
		delete(s.by, namespace)
	}
	s.grant()
}

// grant hands out what is free, one to each namespace in turn.
func (s *slots) grant() {
	for s.used < s.total {
		i := slices.IndexFunc(s.turns, func(namespace string) bool { return s.by[namespace] < s.each })
		if i < 0 {
			return
		}
		namespace := s.turns[i]
		next := s.waiting[namespace][0]
		s.turns = append(slices.Delete(s.turns, i, i+1), namespace)
		s.setWaiting(namespace, s.waiting[namespace][1:])
		s.used++
		s.by[namespace]++
		close(next)
	}
}

func (s *slots) setWaiting(namespace string, list []chan struct{}) {
	if len(list) != 0 {
		s.waiting[namespace] = list
		return
	}
	delete(s.waiting, namespace)
	s.turns = slices.DeleteFunc(s.turns, func(n string) bool { return n == namespace })
}
