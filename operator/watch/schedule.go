package watch

import "time"

const (
	// debounce is how long no further change must be seen before a change triggers
	// discovery, and maxDebounce the maximum delay.
	debounce    = 250 * time.Millisecond
	maxDebounce = time.Second

	// recheckDelay is the delay until a second discovery. The watch delivers a
	// CustomResourceDefinition before the API server serves its types.
	recheckDelay = 2 * time.Second

	// firstRetry is the initial backoff after a failed discovery. It doubles up to the
	// interval.
	firstRetry = time.Second
)

// schedule determines the time of the next discovery.
type schedule struct {
	interval time.Duration
	retry    time.Duration // backoff of the last failure; 0 after a success

	periodic    time.Time // of the periodic discovery
	first, last time.Time // pending changes; zero if there are none
	recheck     time.Time // of the second discovery after a change; zero if there is none
}

// trigger records that types may have changed.
func (s *schedule) trigger(now time.Time) {
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
	s.recheck = now.Add(recheckDelay)
}

// ran records that a discovery ran, and whether it succeeded. Changes from before it began
// are no longer pending.
func (s *schedule) ran(start time.Time, ok bool) {
	wait := s.interval
	if ok {
		s.retry = 0
	} else {
		s.retry = min(max(2*s.retry, firstRetry), s.interval)
		wait = s.retry
	}
	s.periodic = start.Add(wait)
	s.first, s.last = time.Time{}, time.Time{}
	if !s.recheck.After(start) {
		s.recheck = time.Time{}
	}
}

// due returns the time of the next discovery.
func (s *schedule) due() time.Time {
	due := s.periodic
	if !s.first.IsZero() {
		due = earlier(due, earlier(s.last.Add(debounce), s.first.Add(maxDebounce)))
	}
	if !s.recheck.IsZero() {
		due = earlier(due, s.recheck)
	}
	return due
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
