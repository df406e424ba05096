package debug

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/flowcontrol"
)

// Limits of the reviews that clients can cause, which would slow down the API server for
// everyone.
const (
	tokenRate, tokenBurst     = 20, 40   // token reviews per second, for all clients
	addressRate, addressBurst = 2, 10    // for one address
	accessRate, accessBurst   = 200, 400 // access reviews per second, for all users
	userRate, userBurst       = 50, 200  // for one user
	maxConcurrentReviews      = 8        // concurrent reviews of one kind
	maxKeys                   = 1024     // tracked addresses or users
	keyTTL                    = 10 * time.Minute
	maxReviewTime             = 30 * time.Second // for all access reviews of one request
	maxRequestsPerUser        = 8                // concurrent requests of one user
)

// errTooManyReviews means that a rate limit was exceeded.
var errTooManyReviews = errors.New("too many reviews")

// A throttle limits calls: the rate of all calls, the rate for each key, and the number of
// concurrent calls.
type throttle struct {
	all   flowcontrol.RateLimiter
	slots chan struct{}

	rate  float32 // for each key
	burst int
	mu    sync.Mutex // protects the creation of entries in keys
	keys  *cache.LRUExpireCache
}

func newThrottle(rate float32, burst int, keyRate float32, keyBurst int) *throttle {
	return &throttle{
		all: flowcontrol.NewTokenBucketRateLimiter(rate, burst), slots: make(chan struct{}, maxConcurrentReviews),
		rate: keyRate, burst: keyBurst, keys: cache.NewLRUExpireCache(maxKeys),
	}
}

// limiterFor returns the limiter of a key. Limiters that were used least recently are evicted, and
// recreated on demand; the limit for all calls still applies.
func (t *throttle) limiterFor(key string) flowcontrol.RateLimiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cached, ok := t.keys.Get(key); ok {
		return cached.(flowcontrol.RateLimiter)
	}
	limiter := flowcontrol.NewTokenBucketRateLimiter(t.rate, t.burst)
	t.keys.Add(key, limiter, keyTTL)
	return limiter
}

// try calls immediately, or returns errTooManyReviews.
func (t *throttle) try(key string, call func()) error {
	if !t.limiterFor(key).TryAccept() || !t.all.TryAccept() {
		return errTooManyReviews
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
		call()
		return nil
	default:
		return errTooManyReviews
	}
}

// wait calls as soon as the limits allow.
func (t *throttle) wait(ctx context.Context, key string, call func()) error {
	for _, limiter := range []flowcontrol.RateLimiter{t.limiterFor(key), t.all} {
		if err := limiter.Wait(ctx); err != nil {
			return fmt.Errorf("wait for a review: %w", err)
		}
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
		call()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a review: %w", ctx.Err())
	}
}

// userRequests counts the requests in flight of each user.
type userRequests struct {
	mu    sync.Mutex // protects count
	count map[string]int
}

// acquire counts a request, unless the user has too many in flight.
func (c *userRequests) acquire(user string) (release func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count[user] >= maxRequestsPerUser {
		return nil, false
	}
	if c.count == nil {
		c.count = map[string]int{}
	}
	c.count[user]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count[user]--; c.count[user] == 0 {
			delete(c.count, user)
		}
	}, true
}
