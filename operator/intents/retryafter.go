package intents

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	// maxRetryAfter is the maximum Retry-After: a server's value could be wrong by years.
	maxRetryAfter = 10 * time.Minute

	// maxRetryAfters is the maximum number of servers.
	maxRetryAfters = 1000
)

// retryAfters stores the Retry-After of servers, by finalizer.
type retryAfters struct {
	now func() time.Time

	mu    sync.Mutex // protects until
	until map[retryAfterKey]time.Time
}

type retryAfterKey struct{ finalizer, origin string }

func newRetryAfters(now func() time.Time) *retryAfters {
	return &retryAfters{now: now, until: map[retryAfterKey]time.Time{}}
}

// record stores the Retry-After of a response.
func (w *retryAfters) record(key retryAfterKey, response *http.Response) {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return
	}
	now := w.now()
	wait := parseRetryAfter(response.Header.Get("Retry-After"), now)
	if wait <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.until) >= maxRetryAfters {
		w.evict(now)
	}
	w.until[key] = now.Add(wait)
}

// evict evicts the expired entries, or else the one that expires next.
func (w *retryAfters) evict(now time.Time) {
	var next retryAfterKey
	for key, until := range w.until {
		if !until.After(now) {
			delete(w.until, key)
		} else if soonest, ok := w.until[next]; !ok || until.Before(soonest) {
			next = key
		}
	}
	if len(w.until) >= maxRetryAfters {
		delete(w.until, next)
	}
}

// check returns an error until a server's Retry-After has passed.
func (w *retryAfters) check(key retryAfterKey) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, ok := w.until[key]
	switch {
	case !ok:
		return nil
	case !until.After(w.now()):
		delete(w.until, key)
		return nil
	}
	return errorf(hostabi.ErrorUnavailable, "%s sent Retry-After; no requests until %s", key.origin, until.UTC().Format(time.RFC3339))
}

// parseRetryAfter parses a Retry-After header: seconds or a date.
func parseRetryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(at.Sub(now), maxRetryAfter)
	}
	return 0
}
