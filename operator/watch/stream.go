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

// stallTimeout is the timeout without objects after which a streamed list is replaced by an
// ordinary one.
const stallTimeout = 30 * time.Second

// errStalled makes the reflector fall back to an ordinary list.
var errStalled = errors.New("the API server did not complete an earlier streamed list")

// stream supervises the streamed lists of one type. An API server that does not support
// them, such as some aggregated ones, treats the request as an ordinary watch: it never
// sends the end of the list, and the reflector would wait forever. So an idle stream is
// stopped, and no further stream is requested for the type.
type stream struct {
	timeout time.Duration

	mu       sync.Mutex // covers what follows
	timer    *time.Timer
	progress bool // since the timer was set
	failed   bool
}

// start starts to supervise a stream.
func (s *stream) start(w apiwatch.Interface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopTimer()
	s.progress = false
	var timer *time.Timer
	timer = time.AfterFunc(s.timeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.timer != timer: // it has ended
		case s.progress:
			s.progress = false
			timer.Reset(s.timeout)
		default:
			s.timer, s.failed = nil, true
			go w.Stop() // not under the lock: it may wait for the reflector
		}
	})
	s.timer = timer
}

// progressed records that an object was received.
func (s *stream) progressed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = true
}

// end records that a list is complete, or is no longer streamed. It reports whether it
// was being streamed.
func (s *stream) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	streamed := s.timer != nil
	s.stopTimer()
	return streamed
}

// stalled reports whether a stream was stopped because it was idle.
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

// isUnreachable reports whether the reflector retries instead of falling back to an
// ordinary list.
func isUnreachable(err error) bool { return utilnet.IsConnectionRefused(err) }

// stoppableClock is the reflector's clock. The reflector ignores its context in some waits
// between attempts. With this clock they end with the context, so that stopping a watch or
// the process does not take ten seconds.
type stoppableClock struct {
	clock.RealClock
	ctx context.Context
}

// After returns a channel that becomes readable after d, or when the context ends.
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
