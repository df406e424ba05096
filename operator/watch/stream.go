package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// stallAfter is how long a streamed list may bring nothing before it is given
// up for an ordinary one.
const stallAfter = 30 * time.Second

// errStalled sends the reflector to its ordinary list.
var errStalled = errors.New("the API server left an earlier streamed list without an end")

// stream looks after the streamed lists of one type. An API server that does
// not know them at all, as an aggregated one may not, takes the request for an
// ordinary watch: it never says that the list has ended, and the reflector
// waits for that for ever. So a stream on which nothing happens is ended, and
// that API server is not asked for one again.
type stream struct {
	after time.Duration

	mu     sync.Mutex // covers what follows
	timer  *time.Timer
	moved  bool // since the timer was set
	failed bool
}

// opened starts to look after a stream.
func (s *stream) opened(w apiwatch.Interface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopTimer()
	s.moved = false
	var timer *time.Timer
	timer = time.AfterFunc(s.after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.timer != timer: // over, or another stream by now
		case s.moved:
			s.moved = false
			timer.Reset(s.after)
		default:
			s.timer, s.failed = nil, true
			go w.Stop() // not under the lock: it may wait for the reflector
		}
	})
	s.timer = timer
}

// progressed notes that an object came.
func (s *stream) progressed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = true
}

// over notes that a list is complete, or that another way to read it is tried.
// It reports whether it was being streamed.
func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	streamed := s.timer != nil
	s.stopTimer()
	return streamed
}

// stalled reports whether a stream was ended because nothing came.
func (s *stream) stalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *stream) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// isUnreachable reports whether the reflector tries the same again instead of
// an ordinary list.
func isUnreachable(err error) bool { return utilnet.IsConnectionRefused(err) }

// stoppableClock is the reflector's clock. The reflector waits between some of
// its attempts without heed to its context; with this clock such a wait ends
// with it, so that stopping a type or the process takes no ten seconds.
type stoppableClock struct {
	clock.RealClock
	ctx context.Context
}

// After returns a channel that becomes readable after d, or with the context.
func (c stoppableClock) After(d time.Duration) <-chan time.Time {
	fired := make(chan time.Time, 1)
	fire := sync.OnceFunc(func() { fired <- time.Now() })
	unhook := context.AfterFunc(c.ctx, fire)
	time.AfterFunc(d, func() {
		unhook()
		fire()
	})
	return fired
}
