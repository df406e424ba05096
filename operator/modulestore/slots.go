package modulestore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// halfLife is how long it takes until half of the time that a namespace has used is
// forgotten.
const halfLife = time.Minute

// negligible is how much used time is not worth remembering.
const negligible = time.Millisecond

// slots bound how many jobs of one kind run at the same time. A free slot goes to the
// namespace that has used the least time lately, so that whoever has many slow jobs
// waits for others, and not the other way round.
type slots struct {
	size int // jobs in all
	each int // jobs of one namespace

	mu      sync.Mutex // covers what follows
	running map[string]int
	total   int
	used    map[string]usage
	waiting []*waiter // in the order of arrival
}

// usage is the time that a namespace has used, as of some moment.
type usage struct {
	time time.Duration
	at   time.Time
}

// waiter is a job that waits for a slot.
type waiter struct {
	namespace string
	granted   chan struct{} // closed when it has one
}

func newSlots(size, each int) *slots {
	return &slots{size: size, each: each, running: map[string]int{}, used: map[string]usage{}}
}

// acquire waits for a slot. The caller calls release once.
func (s *slots) acquire(ctx context.Context, namespace string) (release func(), err error) {
	w := &waiter{namespace: namespace, granted: make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.granted:
	case <-ctx.Done():
		if s.withdraw(w) {
			return nil, fmt.Errorf("wait for a slot: %w", context.Cause(ctx))
		}
	}
	began := time.Now()
	return func() { s.release(namespace, time.Since(began)) }, nil
}

// withdraw takes a waiter off the list, and reports false if it has a slot already.
func (s *slots) withdraw(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

func (s *slots) release(namespace string, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.running[namespace]--; s.running[namespace] == 0 {
		delete(s.running, namespace)
	}
	now := time.Now()
	s.used[namespace] = usage{s.usedBy(namespace, now) + took, now}
	for other := range s.used {
		if s.usedBy(other, now) < negligible {
			delete(s.used, other)
		}
	}
	s.grant()
}

// usedBy is the time that a namespace has used lately; the caller holds mu.
func (s *slots) usedBy(namespace string, now time.Time) time.Duration {
	u, ok := s.used[namespace]
	if !ok {
		return 0
	}
	return time.Duration(float64(u.time) * math.Exp2(-float64(now.Sub(u.at))/float64(halfLife)))
}

// grant hands out free slots; the caller holds mu.
func (s *slots) grant() {
	for s.total < s.size {
		i := s.next()
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

// next is the place of the waiter whose turn it is; negative: nobody's.
func (s *slots) next() int {
	now, best := time.Now(), -1
	var least time.Duration
	for i, w := range s.waiting {
		if s.running[w.namespace] >= s.each {
			continue
		}
		if used := s.usedBy(w.namespace, now); best < 0 || used < least {
			best, least = i, used
		}
	}
	return best
}

// pool has slots for namespaces, and others for cluster-scoped resources, which never
// wait for those.
type pool struct{ tenants, cluster *slots }

func newPool(tenants, each, cluster int) pool {
	return pool{tenants: newSlots(tenants, each), cluster: newSlots(cluster, cluster)}
}

func (p pool) acquire(ctx context.Context, namespace string) (release func(), err error) {
	if namespace == "" {
		return p.cluster.acquire(ctx, "")
	}
	return p.tenants.acquire(ctx, namespace)
}
