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

// Bounds of the reviews that clients cause. An API server that is asked more is
// slower for everybody.
const (
	tokenRate, tokenBurst     = 20, 40   // reviews of tokens a second, of all clients
	addressRate, addressBurst = 2, 10    // and of those at one address
	accessRate, accessBurst   = 200, 400 // reviews of access a second, of all users
	userRate, userBurst       = 50, 200  // and of one user
	atOnce                    = 8        // reviews of a kind at the same time
	keysKept                  = 1024     // addresses, and users, whose use is remembered
	keyLife                   = 10 * time.Minute
	reviewTime                = 30 * time.Second // that one request may spend on reviews of access
	requestsPerUser           = 8                // that are answered at the same time
)

// errBusy is a review that was not asked for, since there are too many.
var errBusy = errors.New("too many reviews are asked for")

// throttle bounds calls: how many there are a second, of all and of each key, and how
// many at the same time.
type throttle struct {
	all   flowcontrol.RateLimiter
	slots chan struct{}

	rate  float32 // of a key
	burst int
	mu    sync.Mutex // covers the making of what is in keys
	keys  *cache.LRUExpireCache
}

func newThrottle(rate float32, burst int, keyRate float32, keyBurst int) *throttle {
	return &throttle{
		all: flowcontrol.NewTokenBucketRateLimiter(rate, burst), slots: make(chan struct{}, atOnce),
		rate: keyRate, burst: keyBurst, keys: cache.NewLRUExpireCache(keysKept),
	}
}

// of is the limiter of a key. Those that were used longest ago are forgotten, and
// begin anew; all together are bounded still.
func (t *throttle) of(key string) flowcontrol.RateLimiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, ok := t.keys.Get(key); ok {
		return known.(flowcontrol.RateLimiter)
	}
	made := flowcontrol.NewTokenBucketRateLimiter(t.rate, t.burst)
	t.keys.Add(key, made, keyLife)
	return made
}

// try calls at once, or not at all.
func (t *throttle) try(key string, call func()) error {
	if !t.of(key).TryAccept() || !t.all.TryAccept() {
		return errBusy
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
		call()
		return nil
	default:
		return errBusy
	}
}

// wait calls as soon as it may.
func (t *throttle) wait(ctx context.Context, key string, call func()) error {
	for _, limiter := range []flowcontrol.RateLimiter{t.of(key), t.all} {
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

// crowd counts the requests of each user that are being answered.
type crowd struct {
	mu  sync.Mutex // covers the map
	now map[string]int
}

// enter counts a request, unless there are too many of the user.
func (c *crowd) enter(user string) (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now[user] >= requestsPerUser {
		return nil, false
	}
	if c.now == nil {
		c.now = map[string]int{}
	}
	c.now[user]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.now[user]--; c.now[user] == 0 {
			delete(c.now, user)
		}
	}, true
}
