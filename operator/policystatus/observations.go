package policystatus

import (
	"maps"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/policies"
)

// withheldLife is how long an object counts as withheld from a policy: it is evaluated
// again within a minute, for as long as it is withheld. Finalizers may wait for longer
// between two attempts.
const withheldLife = 3 * time.Minute

// Observations are what evaluations have shown about policies and finalizers. They are
// named as policies.Policy.String does. The methods may be called concurrently.
type Observations struct {
	now func() time.Time

	mu        sync.Mutex // covers what follows
	decisions map[string]map[string]int64
	withheld  map[string]withheld
	limited   map[string]time.Time
}

// withheld is why an object was withheld from a policy, and when.
type withheld struct {
	why string
	at  time.Time
}

// NewObservations returns Observations without any.
func NewObservations(now func() time.Time) *Observations {
	return &Observations{
		now: now, decisions: map[string]map[string]int64{}, withheld: map[string]withheld{}, limited: map[string]time.Time{},
	}
}

// Decided counts a decision.
func (o *Observations) Decided(policy, decision string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	counts := o.decisions[policy]
	if counts == nil {
		counts = map[string]int64{}
		o.decisions[policy] = counts
	}
	counts[decision]++
}

// Withheld records that an object is kept because the service account of a policy or
// finalizer may not read it.
func (o *Observations) Withheld(policy, why string) {
	if why == policies.MissingServiceAccount {
		return // the spec says so
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.withheld[policy] = withheld{why, o.now()}
}

// Limited records that a policy writes states more often than it may, so that objects
// wait.
func (o *Observations) Limited(policy string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limited[policy] = o.now()
}

func (o *Observations) decisionsOf(policy string) map[string]int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.decisions[policy])
}

// isLimited reports whether a policy was limited a moment ago.
func (o *Observations) isLimited(policy string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, ok := o.limited[policy]
	if ok && o.now().Sub(at) > withheldLife {
		delete(o.limited, policy)
		return false
	}
	return ok
}

// withheldFrom returns why objects are withheld from a policy or finalizer, and kept; ""
// if they are not, as far as is known. An observation counts for some time.
func (o *Observations) withheldFrom(d *policyset.Declaration, life time.Duration) string {
	p := d.Policy
	if p.Needs == policies.NeedsReference && p.Matches == nil {
		return "" // it reads no objects
	}
	if why := p.ReadProblem(); why != "" {
		return why
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	w, ok := o.withheld[p.String()]
	if !ok {
		return ""
	}
	if o.now().Sub(w.at) > life {
		delete(o.withheld, p.String())
		return ""
	}
	return "grant its service account get on what resources names; " + w.why
}

// keep forgets what is known about policies and finalizers that a snapshot does not have.
func (o *Observations) keep(s *policyset.Snapshot) {
	exists := map[string]bool{}
	for _, p := range s.Policies {
		exists[p.Policy.String()] = true
	}
	for _, f := range s.Finalizers {
		exists[f.Policy.String()] = true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.decisions, func(policy string, _ map[string]int64) bool { return !exists[policy] })
	maps.DeleteFunc(o.withheld, func(policy string, _ withheld) bool { return !exists[policy] })
	maps.DeleteFunc(o.limited, func(policy string, _ time.Time) bool { return !exists[policy] })
}
