package modulestore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// halfLife is the half-life of the time that a namespace has used.
const halfLife = time.Minute

// negligibleUsage is the used time below which a namespace is forgotten.
const negligibleUsage = time.Millisecond

// fairSlots limit the number of concurrent jobs of one kind. A free slot goes to the namespace
// that has recently used the least time, so that a namespace with many slow jobs does not
// delay the others.
type fairSlots struct {
	max          int // maximum number of jobs
	perNamespace int // maximum number of jobs of one namespace

	mu      sync.Mutex // protects the fields below
	running map[string]int
	total   int
	usage   map[string]usage
	waiting []*waiter // in order of arrival
}

// A usage is the time that a namespace had used at a point in time.
type usage struct {
	time time.Duration
	at   time.Time
}

// A waiter is a job that waits for a slot.
type waiter struct {
	namespace string
	granted   chan struct{} // closed when a slot is granted
}

func newSlots(size, each int) *fairSlots {
	return &fairSlots{max: size, perNamespace: each, running: map[string]int{}, usage: map[string]usage{}}
}

// acquire waits for a slot. The caller must call release once.
func (s *fairSlots) acquire(ctx context.Context, namespace string) (release func(), err error) {
	w := &waiter{namespace: namespace, granted: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.granted:
	case <-ctx.Done():
		if s.cancel(w) {
			return nil, fmt.Errorf("wait for a slot: %w", context.Cause(ctx))
		}
	}
	began := time.Now()
	return func() { s.release(namespace, time.Since(began)) }, nil
}

// cancel removes a waiter. It returns false if a slot was granted already.
func (s *fairSlots) cancel(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

func (s *fairSlots) release(namespace string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.running[namespace]--; s.running[namespace] == 0 {
		delete(s.running, namespace)
	}
	now := time.Now()
	s.usage[namespace] = usage{s.usageOf(namespace, now) + took, now}
	for other := range s.usage {
		if s.usageOf(other, now) < negligibleUsage {
			delete(s.usage, other)
		}
	}
	s.grant()
}

// usageOf returns the decayed time that a namespace has used; the caller holds mu.
func (s *fairSlots) usageOf(namespace string, now time.Time) time.Duration {
	u, ok := s.usage[namespace]
	if !ok {
		return 0
	}
	return time.Duration(float64(u.time) * math.Exp2(-float64(now.Sub(u.at))/float64(halfLife)))
}

// grant assigns free slots to waiters; the caller holds mu.
func (s *fairSlots) grant() {
	for s.total < s.max {
		i := s.nextWaiter()
		if i < 0 {
			return
		}
		w := s.waiting[i]
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.running[w.namespace]++
		s.total++
		close(w.granted)
	}
}

// nextWaiter returns the index of the waiter that gets the next slot; negative: none.
func (s *fairSlots) nextWaiter() int {
	now, best := time.Now(), -1
	var leastUsage time.Duration
	for i, w := range s.waiting {
		if s.running[w.namespace] >= s.perNamespace {
			continue
		}
		if used := s.usageOf(w.namespace, now); best < 0 || used < leastUsage {
			best, leastUsage = i, used
		}
	}
	return best
}

// A pool has slots for namespaces, and separate ones for cluster-scoped resources.
type pool struct{ namespaced, cluster *fairSlots }

func newPool(tenants, each, cluster int) pool {
	return pool{namespaced: newSlots(tenants, each), cluster: newSlots(cluster, cluster)}
}

func (p pool) acquire(ctx context.Context, namespace string) (release func(), err error) {
	if namespace == "" {
		return p.cluster.acquire(ctx, "")
	}
	return p.namespaced.acquire(ctx, namespace)
}
