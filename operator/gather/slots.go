package gather

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxReads is the maximum number of concurrent reads of owners, including those that
	// no caller waits for any more.
	maxReads = 32

	// maxNamespaceReads is the maximum number of those for the objects of one namespace.
	maxNamespaceReads = 8
)

// slots limits the number of concurrent reads: in total, and for the objects of one
// namespace. Waiting namespaces are served round-robin. Its methods may be called
// concurrently.
type slots struct {
	max, maxPerNamespace int // maximums

	mu      sync.Mutex // covers what follows
	used    int
	usedBy  map[string]int             // slots used, by namespace
	waiting map[string][]chan struct{} // closed when a slot is granted; in order of arrival
	order   []string                   // the namespaces in waiting; the first is next
}

func newSlots(total, each int) *slots {
	return &slots{max: total, maxPerNamespace: each, usedBy: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// acquire waits for a slot until ctx ends. The caller must release the slot.
func (s *slots) acquire(ctx context.Context, namespace string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	granted := s.enqueue(namespace)
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
		s.cancel(namespace, granted)
		return ctx.Err()
	}
}

func (s *slots) enqueue(namespace string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	granted := make(chan struct{})
	if len(s.waiting[namespace]) == 0 {
		s.order = append(s.order, namespace)
	}
	s.waiting[namespace] = append(s.waiting[namespace], granted)
	s.grantLocked()
	return granted
}

// cancel stops waiting, and releases the slot if it was granted meanwhile.
func (s *slots) cancel(namespace string, granted chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting[namespace], granted); i >= 0 {
		s.setWaiting(namespace, slices.Delete(s.waiting[namespace], i, i+1))
		return
	}
	s.releaseLocked(namespace)
}

func (s *slots) release(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseLocked(namespace)
}

func (s *slots) releaseLocked(namespace string) {
	s.used--
	if s.usedBy[namespace]--; s.usedBy[namespace] == 0 {
		delete(s.usedBy, namespace)
	}
	s.grantLocked()
}

// grantLocked assigns free slots round-robin by namespace.
func (s *slots) grantLocked() {
	for s.used < s.max {
		i := slices.IndexFunc(s.order, func(namespace string) bool { return s.usedBy[namespace] < s.maxPerNamespace })
		if i < 0 {
			return
		}
		namespace := s.order[i]
		next := s.waiting[namespace][0]
		s.order = append(slices.Delete(s.order, i, i+1), namespace)
		s.setWaiting(namespace, s.waiting[namespace][1:])
		s.used++
		s.usedBy[namespace]++
		close(next)
	}
}

func (s *slots) setWaiting(namespace string, list []chan struct{}) {
	if len(list) != 0 {
		s.waiting[namespace] = list
		return
	}
	delete(s.waiting, namespace)
	s.order = slices.DeleteFunc(s.order, func(n string) bool { return n == namespace })
}
