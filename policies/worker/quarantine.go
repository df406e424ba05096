package worker

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

const (
	firstQuarantine = 10 * time.Second
	maxQuarantine   = 30 * time.Minute

	// maxQuarantined bounds what is remembered; the entries that end first are evicted.
	maxQuarantined = 4096
)

// subject is what is quarantined: a module, for the objects of one namespace. A
// cluster-scoped module that fails for the objects of one tenant still runs for
// others.
type subject struct {
	scope            Scope
	digest           string // of the module
	compileNamespace string // its namespace, while it is being compiled
	policy           string
	limits           sandbox.Limits

	// evaluating is false while the module is being compiled or started.
	evaluating bool
	namespace  string // of the object; empty: it is cluster-scoped
}

// quarantineEntry is the cause and the end of a quarantine.
type quarantineEntry struct {
	cause  Cause
	detail string
	times  int // in a row
	until  time.Time
}

// quarantine suspends modules whose workers had to be killed.
type quarantine struct {
	now func() time.Time

	lock sync.Mutex // protects the following fields
	all  map[subject]quarantineEntry
}

func newQuarantine(now func() time.Time) *quarantine {
	return &quarantine{now: now, all: map[subject]quarantineEntry{}}
}

// check returns the quarantine of a subject, if there is one.
func (q *quarantine) check(s subject) (quarantineEntry, bool) {
	q.lock.Lock()
	defer q.lock.Unlock()
	found, ok := q.all[s]
	return found, ok && q.now().Before(found.until)
}

// add quarantines a subject, each time for twice as long.
func (q *quarantine) add(s subject, cause Cause, detail string) quarantineEntry {
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

// evict evicts the entry that ends first.
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

// remove removes a subject that has run successfully since.
func (q *quarantine) remove(s subject) {
	q.lock.Lock()
	defer q.lock.Unlock()
	if len(q.all) != 0 {
		delete(q.all, s)
	}
}

// removeSuperseded removes entries of the policy with another module or other limits.
func (q *quarantine) removeSuperseded(now subject) {
	q.lock.Lock()
	defer q.lock.Unlock()
	maps.DeleteFunc(q.all, func(s subject, _ quarantineEntry) bool {
		return s.policy == now.policy && s.scope == now.scope && (s.digest != now.digest || s.limits != now.limits)
	})
}

// Quarantined is a module that is suspended.
type Quarantined struct {
	Digest     string    // of the module
	Policy     string    // or finalizer, that it runs for
	AllObjects bool      // it runs for no object: it could not be compiled or started
	Namespace  string    // whose objects it does not run for otherwise; empty: cluster-scoped ones
	Cause      Cause     // why its worker ended
	Message    string    // the same as the rest of a sentence about the module
	Count      int       // in a row
	Until      time.Time // when it may run again
}

// Quarantined lists the suspended modules, by policy and namespace.
func (p *Pool) Quarantined() []Quarantined {
	q := p.quarantine
	q.lock.Lock()
	defer q.lock.Unlock()
	now := q.now()
	var list []Quarantined
	for s := range maps.Keys(q.all) {
		if found := q.all[s]; now.Before(found.until) {
			list = append(list, Quarantined{
				Digest: s.digest, Policy: s.policy, AllObjects: !s.evaluating, Namespace: s.namespace,
				Cause: found.cause, Message: found.detail, Count: found.times, Until: found.until,
			})
		}
	}
	slices.SortFunc(list, func(a, b Quarantined) int {
		if a.AllObjects != b.AllObjects && a.Policy == b.Policy {
			return cmpAll(a.AllObjects)
		}
		return compareText(a.Policy, b.Policy, a.Namespace, b.Namespace, a.Digest, b.Digest)
	})
	return list
}

// cmpAll sorts entries for all objects first.
func cmpAll(all bool) int {
	if all {
		return -1
	}
	return 1
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

// message returns the message for the module's author.
func (s quarantineEntry) message() string {
	return fmt.Sprintf("%s; it is not run again before %s (it did so %d times in a row): change the module, or its limits",
		s.detail, s.until.UTC().Format(time.RFC3339), s.times)
}
