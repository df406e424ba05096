package budget

import "time"

// MaxLine bounds a Line. Deletions beyond that have no place in the order.
const MaxLine = 20_000

// Line is the order of the deletions of one process that wait for a budget. The zero Line is empty. It must not be
// used concurrently.
type Line[K comparable] struct {
	order  []K // oldest first; has keys that have left
	places map[K]place
	called []K // in the order of their calls; has keys that have left
	calls  int // places that are called
}

// place is the place of a deletion in the line.
type place struct {
	called  bool
	expires time.Duration // of the call, on the monotonic clock
}

// MayPass reports whether a deletion may take one of the free tokens: those that are called go first, then those that
// wait, and then others.
func (l *Line[K]) MayPass(key K, free int) bool {
	at, waits := l.places[key]
	return waits && at.called || len(l.places) == l.calls && free > l.calls
}

// Join adds a deletion at the end, unless it is waiting already or the line is full.
func (l *Line[K]) Join(key K) {
	if at, waits := l.places[key]; waits && at.called {
		l.Leave(key) // its token is gone
	} else if waits {
		return
	}
	if len(l.places) >= MaxLine {
		return
	}
	if l.places == nil {
		l.places = map[K]place{}
	}
	l.places[key] = place{}
	l.order = append(l.order, key)
}

// Leave removes a deletion.
func (l *Line[K]) Leave(key K) {
	at, waits := l.places[key]
	if !waits {
		return
	}
	delete(l.places, key)
	if at.called {
		l.calls--
	}
	if len(l.places) == 0 {
		l.order, l.called = nil, nil
	}
}

// Call calls as many deletions as there are free tokens, and returns those that were not called before. Each has to be
// decided again soon: calls expire after Lifetime, since the object may no longer have to be deleted.
func (l *Line[K]) Call(free int, now Instant) (keys []K) {
	l.expire(now)
	for l.calls < free && len(l.order) > 0 {
		key := l.order[0]
		l.order = l.order[1:]
		if at, waits := l.places[key]; !waits || at.called {
			continue
		}
		l.places[key] = place{called: true, expires: now.Mono + Lifetime}
		l.called = append(l.called, key)
		l.calls++
		keys = append(keys, key)
	}
	return keys
}

// expire removes the deletions that were called and have not come.
func (l *Line[K]) expire(now Instant) {
	for len(l.called) > 0 {
		key := l.called[0]
		at, waits := l.places[key]
		if waits && at.called && now.Mono < at.expires {
			return
		}
		l.called = l.called[1:]
		if waits && at.called {
			l.Leave(key)
		}
	}
}

// Len returns how many deletions wait, with those that are called.
func (l *Line[K]) Len() int { return len(l.places) }

// Clear removes all deletions, and returns them in order.
func (l *Line[K]) Clear() (keys []K) {
	for _, key := range append(l.called, l.order...) {
		if _, waits := l.places[key]; waits {
			keys = append(keys, key)
			l.Leave(key)
		}
	}
	return keys
}
