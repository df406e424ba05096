package source

import (
	"context"
	"sync"
)

// place is what shares the right to download: everything, a namespace, a server.
type place struct{ kind, name string }

// slots bound how many download at the same time, so that one server that is slow, or
// one namespace with many modules, delays its own modules and no others. Modules of
// the cluster have slots of their own.
type slots struct {
	limits Limits

	mu      sync.Mutex // covers what follows
	running map[place]int
	waiting []*waiter // the longest first
}

// waiter is a download that has not begun.
type waiter struct {
	namespace place
	places    []place
	ready     chan struct{} // closed once it may begin
}

func placesOf(s Source, host string) (namespace place, all []place) {
	pool := "cluster"
	if s.Namespace != "" {
		pool = "namespaces"
	}
	all = []place{{pool, ""}, {pool + "/host", host}}
	if s.Namespace != "" {
		namespace = place{"namespace", s.Namespace}
		all = append(all, namespace)
	}
	return namespace, all
}

func (l Limits) slotsOf(p place) int {
	switch p.kind {
	case "cluster":
		return l.Fetches
	case "namespaces":
		return l.NamespaceFetches
	default: // a host, or one namespace
		return l.FetchesEach
	}
}

// take waits for the right to download, until the context ends. Who got it calls leave.
func (s *slots) take(ctx context.Context, of Source, host string) (leave func(), err error) {
	w := &waiter{ready: make(chan struct{})}
	w.namespace, w.places = placesOf(of, host)
	s.mu.Lock()
	if s.running == nil {
		s.running = map[place]int{}
	}
	s.waiting = append(s.waiting, w)
	s.admit()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return sync.OnceFunc(func() { s.leave(w) }), nil
	case <-ctx.Done():
		if s.withdraw(w) {
			return nil, &Error{Reason: Unreachable, Temporary: true, cause: ctx.Err(),
				Message: "others of the same namespace, or from the same server, are being fetched, and took too long"}
		}
		return sync.OnceFunc(func() { s.leave(w) }), nil
	}
}

func (s *slots) leave(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range w.places {
		if s.running[p]--; s.running[p] == 0 {
			delete(s.running, p)
		}
	}
	s.admit()
}

// withdraw tells whether it was in time: what has the right already must leave.
func (s *slots) withdraw(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.waiting {
		if other == w {
			s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// admit lets begin what may: the namespace with the fewest first, and within it who
// has waited longest. The lock is held.
func (s *slots) admit() {
	for {
		next := -1
		for i, w := range s.waiting {
			if s.fits(w) && (next < 0 || s.running[w.namespace] < s.running[s.waiting[next].namespace]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := s.waiting[next]
		s.waiting = append(s.waiting[:next:next], s.waiting[next+1:]...)
		for _, p := range w.places {
			s.running[p]++
		}
		close(w.ready)
	}
}

func (s *slots) fits(w *waiter) bool {
	for _, p := range w.places {
		if s.running[p] >= s.limits.slotsOf(p) {
			return false
		}
	}
	return true
}
