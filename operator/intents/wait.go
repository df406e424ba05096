package intents

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	// longestWait bounds what a server may ask for: it could be wrong by years.
	longestWait = 10 * time.Minute

	// waitsKept bounds the servers that are remembered.
	waitsKept = 1000
)

// waits remembers which servers asked to be left alone for a while, and by whom.
type waits struct {
	now func() time.Time

	mu    sync.Mutex // covers until
	until map[waitKey]time.Time
}

type waitKey struct{ finalizer, origin string }

func newWaits(now func() time.Time) *waits { return &waits{now: now, until: map[waitKey]time.Time{}} }

// note takes up what a response asks for.
func (w *waits) note(key waitKey, response *http.Response) {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return
	}
	now := w.now()
	wait := waitOf(response.Header.Get("Retry-After"), now)
	if wait <= 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.until) >= waitsKept {
		w.forget(now)
	}
	w.until[key] = now.Add(wait)
}

// forget makes room: by those whose time is over, or else by whose time is over next.
func (w *waits) forget(now time.Time) {
	var next waitKey
	for key, until := range w.until {
		if !until.After(now) {
			delete(w.until, key)
		} else if soonest, ok := w.until[next]; !ok || until.Before(soonest) {
			next = key
		}
	}
	if len(w.until) >= waitsKept {
		delete(w.until, next)
	}
}

// check refuses a request to a server that is to be left alone.
func (w *waits) check(key waitKey) error {
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
	return problemf(hostabi.ErrorUnavailable, "%s has asked to be left alone; nothing is sent to it until %s", key.origin, until.UTC().Format(time.RFC3339))
}

// waitOf reads a Retry-After header: seconds, or a time.
func waitOf(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, longestWait)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(at.Sub(now), longestWait)
	}
	return 0
}
