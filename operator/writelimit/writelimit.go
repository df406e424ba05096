// Package writelimit bounds how much policies and finalizers may have written in a
// time: each of them, and all of them together about the objects of one namespace. So
// one module that never comes to an end can't use up the API server, and the objects
// of one namespace can't use up the share of a finalizer of the cluster.
//
// It writes nothing, and does not wait: it says how long to wait.
package writelimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate is how many writes there may be: so many a second in the long run, and at most
// Burst at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Limiter counts writes. A nil Limiter limits nothing. Its methods may be called
// concurrently.
type Limiter struct {
	owner, namespace Rate

	mu sync.Mutex // covers by
	by map[bucket]*rate.Limiter
}

// bucket is whom writes are counted for: a policy or finalizer, or a namespace.
type bucket struct{ owner, namespace string }

// maxBuckets bounds how many are kept. Those that are full again are evicted first,
// which nobody can notice.
const maxBuckets = 10_000

// New returns a Limiter by policy or finalizer, and by namespace.
func New(owner, namespace Rate) *Limiter {
	return &Limiter{owner: owner, namespace: namespace, by: map[bucket]*rate.Limiter{}}
}

// Take counts n writes that a policy or finalizer wants about an object in a namespace,
// which is empty if the object is in none. If they are not to be made now it counts
// none, and returns how long to wait.
func (l *Limiter) Take(owner, namespace string, n int, now time.Time) (wait time.Duration) {
	if l == nil || n <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var reserved []*rate.Reservation
	for _, b := range l.buckets(owner, namespace, now) {
		r := b.ReserveN(now, min(n, b.Burst()))
		reserved = append(reserved, r)
		wait = max(wait, r.DelayFrom(now))
	}
	if wait > 0 {
		for _, r := range reserved {
			r.CancelAt(now)
		}
	}
	return wait
}

// Charge counts n writes that have to be made in any case. Those that come after them
// wait for longer.
func (l *Limiter) Charge(owner, namespace string, n int, now time.Time) {
	if l == nil || n <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.buckets(owner, namespace, now) {
		b.ReserveN(now, min(n, b.Burst()))
	}
}

func (l *Limiter) buckets(owner, namespace string, now time.Time) []*rate.Limiter {
	found := []*rate.Limiter{l.bucket(bucket{owner: owner}, l.owner, now)}
	if namespace != "" {
		found = append(found, l.bucket(bucket{namespace: namespace}, l.namespace, now))
	}
	return found
}

func (l *Limiter) bucket(of bucket, r Rate, now time.Time) *rate.Limiter {
	if b, ok := l.by[of]; ok {
		return b
	}
	if len(l.by) >= maxBuckets {
		l.evict(now)
	}
	b := rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)
	l.by[of] = b
	return b
}

// evict drops the buckets that are full, or all if none is: whoever had used up theirs
// gets a new one, once in a long while.
func (l *Limiter) evict(now time.Time) {
	for of, b := range l.by {
		if b.TokensAt(now) >= float64(b.Burst()) {
			delete(l.by, of)
		}
	}
	if len(l.by) >= maxBuckets {
		clear(l.by)
	}
}

// Len is how many policies, finalizers and namespaces are counted for.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.by)
}
