package worker

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	firstQuarantine = 10 * time.Second
	maxQuarantine   = 30 * time.Minute

	// maxQuarantined bounds what is remembered; the entries that end first are evicted.
	maxQuarantined = 4096
)

// subject is what is quarantined: a module, for the objects of one namespace. What one
// tenant's objects do to a module of the cluster does not concern the others.
type subject struct {
	scope     Scope
	digest    string // of the module
	policy    string
	namespace string // of the object; empty while the module is being compiled or started
}

// sentence is why and until when.
type sentence struct {
	cause  Cause
	detail string
	times  int // in a row
	until  time.Time
}

// quarantine keeps modules from running that had their workers killed.
type quarantine struct {
	now func() time.Time

	lock sync.Mutex // covers what follows
	all  map[subject]sentence
}

func newQuarantine(now func() time.Time) *quarantine {
	return &quarantine{now: now, all: map[subject]sentence{}}
}

// check returns why a subject may not run now.
func (q *quarantine) check(s subject) (sentence, bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	found, ok := q.all[s]
	return found, ok && q.now().Before(found.until)
}

// add quarantines a subject, each time for twice as long.
func (q *quarantine) add(s subject, cause Cause, detail string) sentence {
	q.lock.Lock()
	defer q.lock.Unlock()
	found := q.all[s]
	found.cause, found.detail = cause, detail
	found.times++
	wait := min(maxQuarantine, firstQuarantine<<min(found.times-1, 16))
	found.until = q.now().Add(wait)
	if _, there := q.all[s]; !there && len(q.all) >= maxQuarantined {
		q.evict()
	}
	q.all[s] = found
	return found
}

// evict makes room for one more.
func (q *quarantine) evict() {
	var first subject
	var until time.Time
	for s, found := range q.all {
		if until.IsZero() || found.until.Before(until) {
			first, until = s, found.until
		}
	}
	delete(q.all, first)
}

// clear forgets a subject that has run well since.
func (q *quarantine) clear(s subject) {
	q.lock.Lock()
	defer q.lock.Unlock()
	if len(q.all) != 0 {
		delete(q.all, s)
	}
}

// Quarantined is a module that does not run for now.
type Quarantined struct {
	Digest    string    // of the module
	Policy    string    // or finalizer, that it runs for
	Namespace string    // whose objects it does not run for; empty: it runs for none
	Cause     Cause     // why its worker ended
	Message   string    // the same as the rest of a sentence about the module
	Times     int       // in a row
	Until     time.Time // when it may run again
}

// Quarantined lists the modules that do not run for now, by policy and namespace.
func (p *Pool) Quarantined() []Quarantined {
	q := p.quarantine
	q.lock.Lock()
	defer q.lock.Unlock()
	now := q.now()
	var list []Quarantined
	for s := range maps.Keys(q.all) {
		if found := q.all[s]; now.Before(found.until) {
			list = append(list, Quarantined{
				Digest: s.digest, Policy: s.policy, Namespace: s.namespace,
				Cause: found.cause, Message: found.detail, Times: found.times, Until: found.until,
			})
		}
	}
	slices.SortFunc(list, func(a, b Quarantined) int {
		return compareText(a.Policy, b.Policy, a.Namespace, b.Namespace, a.Digest, b.Digest)
	})
	return list
}

// compareText compares pairs of texts until one differs.
func compareText(pairs ...string) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		switch {
		case pairs[i] < pairs[i+1]:
			return -1
		case pairs[i] > pairs[i+1]:
			return 1
		}
	}
	return 0
}

// message is what its author is told.
func (s sentence) message() string {
	return fmt.Sprintf("%s; it is not run again before %s (it did so %d times in a row): change the module, or its limits",
		s.detail, s.until.UTC().Format(time.RFC3339), s.times)
}
