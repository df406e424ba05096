package source

import (
	"context"
	"sync"
)

// scope is a scope in which fetches are limited: all, a namespace or a server.
type scope struct{ kind, name string }

// slots limit concurrent downloads, so that a slow server, or a namespace with many
// modules, delays only its own modules. Cluster-scoped modules have separate slots.
type slots struct {
	limits Limits

	mu      sync.Mutex // protects the following fields
	running map[scope]int
	waiting []*waiter // in order of arrival
}

// waiter is a download that waits for a slot.
type waiter struct {
	namespace scope
	scopes    []scope
	ready     chan struct{} // closed once it has a slot
}

func scopesOf(s Source, host string) (namespace scope, all []scope) {
	pool := "cluster"
	if s.Namespace != "" {
		pool = "namespaces"
	}
	all = []scope{{pool, ""}, {pool + "/host", host}}
	if s.Namespace != "" {
		namespace = scope{"namespace", s.Namespace}
		all = append(all, namespace)
	}
	return namespace, all
}

func (l Limits) slots(p scope) int {
	switch p.kind {
	case "cluster":
		return l.Fetches
	case "namespaces":
		return l.NamespaceFetches
	default: // a host or a namespace
		return l.FetchesPerScope
	}
}

// acquire waits for a slot until the context ends. The caller must call leave.
func (s *slots) acquire(ctx context.Context, of Source, host string) (leave func(), err error) {
	w := &waiter{ready: make(chan struct{})}
	w.namespace, w.scopes = scopesOf(of, host)
	s.mu.Lock()
	if s.running == nil {
		s.running = map[scope]int{}
	}
	s.waiting = append(s.waiting, w)
	s.admit()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return sync.OnceFunc(func() { s.release(w) }), nil
	case <-ctx.Done():
		if s.cancel(w) {
			return nil, &Error{Reason: Unreachable, Temporary: true, cause: ctx.Err(),
				Message: "timeout while other modules of the same namespace or server are being fetched"}
		}
		return sync.OnceFunc(func() { s.release(w) }), nil
	}
}

func (s *slots) release(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range w.scopes {
		if s.running[p]--; s.running[p] == 0 {
			delete(s.running, p)
		}
	}
	s.admit()
}

// cancel removes a waiter, and reports whether it had no slot yet. Otherwise the
// caller must leave.
func (s *slots) cancel(w *waiter) bool {
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

// admit gives slots to waiters: the namespace with the fewest downloads first, and
// within it in order of arrival. The lock is held.
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
		for _, p := range w.scopes {
			s.running[p]++
		}
		close(w.ready)
	}
}

func (s *slots) fits(w *waiter) bool {
	for _, p := range w.scopes {
		if s.running[p] >= s.limits.slots(p) {
			return false
		}
	}
	return true
}
