package watch

import "time"

const (
	// quiet is how long no further change must have been seen before types are
	// looked for because of one, and patience how long that can put it off.
	quiet    = 250 * time.Millisecond
	patience = time.Second

	// afterthought is when they are looked for once more. A definition is seen
	// before discovery has it, and how long that takes is up to the API server.
	afterthought = 2 * time.Second

	// firstRetry is the wait after a failed discovery. It doubles up to the
	// interval as discoveries go on to fail.
	firstRetry = time.Second
)

// schedule says when to look for types next.
type schedule struct {
	interval time.Duration
	retry    time.Duration // of the last failure; 0 after a success

	regular     time.Time // the time in any case
	first, last time.Time // pokes not answered yet; zero if there are none
	again       time.Time // the afterthought; zero if there is none
}

// poke notes that types seem to have changed.
func (s *schedule) poke(now time.Time) {
	if s.first.IsZero() {
		s.first = now
	}
	s.last = now
	s.again = now.Add(afterthought)
}

// ran notes that types were looked for, and whether that worked. It answers
// the pokes from before it began.
func (s *schedule) ran(began time.Time, ok bool) {
	wait := s.interval
	if ok {
		s.retry = 0
	} else {
		s.retry = min(max(2*s.retry, firstRetry), s.interval)
		wait = s.retry
	}
	s.regular = began.Add(wait)
	s.first, s.last = time.Time{}, time.Time{}
	if !s.again.After(began) {
		s.again = time.Time{}
	}
}

// due returns the time to look for types.
func (s *schedule) due() time.Time {
	due := s.regular
	if !s.first.IsZero() {
		due = earlier(due, earlier(s.last.Add(quiet), s.first.Add(patience)))
	}
	if !s.again.IsZero() {
		due = earlier(due, s.again)
	}
	return due
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
