// Package writelimit limits the rate of writes by policies and finalizers: for each of them,
// and for all of them together for the objects of one namespace. So a module in an endless
// loop can't overload the API server, and the objects of one namespace can't exhaust the
// limit of a cluster-scoped finalizer.
//
// It neither writes nor waits, but returns how long to wait.
package writelimit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// A Rate is a maximum number of writes: PerSecond in the long run, and Burst at once.
type Rate struct {
	PerSecond float64
	Burst     int
}

// A Limiter counts writes. A nil Limiter limits nothing. Its methods may be called
// concurrently.
type Limiter struct {
	owner, namespace Rate

	mu       sync.Mutex // protects by
	limiters map[bucketKey]*rate.Limiter
}

// A bucketKey identifies a token bucket: a policy or finalizer, or a namespace.
type bucketKey struct{ owner, namespace string }

// maxBuckets is the maximum number of buckets. Full buckets are evicted first, which has no
// effect.
const maxBuckets = 10_000

// New returns a Limiter with a rate for each policy or finalizer, and one for each
// namespace.
func New(owner, namespace Rate) *Limiter {
	return &Limiter{owner: owner, namespace: namespace, limiters: map[bucketKey]*rate.Limiter{}}
}

// Take counts n writes of a policy or finalizer for an object in a namespace, which is
// empty for cluster-scoped objects. If the limit is exceeded, it counts nothing and returns
// how long to wait.
func (l *Limiter) Take(owner, namespace string, n int, now time.Time) (wait time.Duration) {
	if l == nil || n <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var reserved []*rate.Reservation
	for _, b := range l.limitersFor(owner, namespace, now) {
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

// Charge counts n writes that are made regardless of the limit. Later writes wait longer.
func (l *Limiter) Charge(owner, namespace string, n int, now time.Time) {
	if l == nil || n <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.limitersFor(owner, namespace, now) {
		b.ReserveN(now, min(n, b.Burst()))
	}
}

func (l *Limiter) limitersFor(owner, namespace string, now time.Time) []*rate.Limiter {
	found := []*rate.Limiter{l.limiterFor(bucketKey{owner: owner}, l.owner, now)}
	if namespace != "" {
		found = append(found, l.limiterFor(bucketKey{namespace: namespace}, l.namespace, now))
	}
	return found
}

func (l *Limiter) limiterFor(key bucketKey, r Rate, now time.Time) *rate.Limiter {
	if b, ok := l.limiters[key]; ok {
		return b
	}
	if len(l.limiters) >= maxBuckets {
		l.evict(now)
	}
	b := rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)
	l.limiters[key] = b
	return b
}

// evict removes full buckets, or all buckets if too many are left: exhausted ones are then
// refilled, which is rare.
func (l *Limiter) evict(now time.Time) {
	for key, b := range l.limiters {
		if b.TokensAt(now) >= float64(b.Burst()) {
			delete(l.limiters, key)
		}
	}
	if len(l.limiters) >= maxBuckets {
		clear(l.limiters)
	}
}

// Len returns the number of buckets.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.limiters)
}
