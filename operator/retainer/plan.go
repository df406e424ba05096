package retainer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/references"
	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

// plan is what is known for one policy.
type plan struct {
	*policyset.Retention
	survey *retention.Survey
	kinds  map[schema.GroupKind]bool // that it selects and that are served
	unread map[schema.GroupKind]bool // of those, the ones that were not listed for it yet

	problem    string    // why it is not evaluated; "": it is
	overflowed time.Time // when it was found to select too many objects; zero: it does not

	dirty     time.Time // when something has changed since the last evaluation; zero: nothing has
	notBefore time.Time // of the next evaluation
	evaluated bool
	next      time.Time      // when time alone changes the result; zero: never
	seen      seen           // by the last evaluation
	released  references.Set // since the last evaluation

	dueSince    dueSince
	delays      Delays
	pending     []retention.Decision // by the last evaluation, without some that are not to be removed any more
	skipped     map[types.UID]bool   // of those, since the last evaluation
	waitsUntil  time.Time            // removals wait for a pause or a budget
	served      time.Time            // when a worker removed its objects last
	failures    map[types.UID]failure
	removed     map[retain.Reason]int64
	failed      int64
	failedAt    time.Time
	failure     string
	evaluations evaluations
	keptBy      string // another policy that keeps an object which this one removes (P-25), as it was found last
}

type failure struct {
	count int
	until time.Time
}

// is reports whether a plan is that of a policy.
func (p *plan) is(of *policyset.Retention) bool {
	return p.Object.GetGeneration() == of.Object.GetGeneration() && p.Problem == of.Problem
}

// ready reports whether all objects of the policy were listed.
func (p *plan) ready() bool { return p.problem == "" && p.overflowed.IsZero() && len(p.unread) == 0 }

// due returns when the policy is evaluated next; zero: when something changes.
func (p *plan) due() time.Time {
	if !p.ready() {
		return time.Time{}
	}
	at := p.next
	if !p.dirty.IsZero() {
		at = earliest(at, p.dirty.Add(settle))
	}
	if !p.evaluated {
		at = p.notBefore
		if at.IsZero() {
			at = time.Unix(0, 0)
		}
	}
	if !at.IsZero() && at.Before(p.notBefore) {
		return p.notBefore
	}
	return at
}

// change notes that something has changed.
func (p *plan) change(now time.Time) {
	if p.dirty.IsZero() {
		p.dirty = now
	}
}

// decide takes a result over.
func (p *plan) decide(r retention.Result, now time.Time) {
	p.dueSince.update(r.Removals, now)
	p.dirty, p.evaluated, p.next, p.seen = time.Time{}, true, r.Next, summarize(r)
	p.pending, p.skipped = r.Removals, map[types.UID]bool{}
}

// isPending reports whether an object is still to be removed.
func (p *plan) isPending(uid types.UID) bool { return p.survey.Removes(uid) && !p.skipped[uid] }

// batch returns removals that can be tried now, at most as many as a turn has, and when others can be; zero: there are none.
func (p *plan) batch(now time.Time) (batch []retention.Decision, later time.Time) {
	for len(p.pending) != 0 && !p.isPending(p.pending[0].UID) {
		p.pending = p.pending[1:]
	}
	for _, d := range p.pending {
		if !p.isPending(d.UID) {
			continue
		}
		if until := p.until(d); now.Before(until) {
			later = earliest(later, until)
			continue
		}
		if batch = append(batch, d); len(batch) == maxPerTurn {
			break
		}
	}
	return batch, later
}

// until returns when the removal of an object is tried; zero, or a time that has passed: now.
func (p *plan) until(d retention.Decision) time.Time {
	failed, evaluated := p.failures[d.UID].until, p.evaluations.until(d)
	if failed.After(evaluated) {
		return failed
	}
	return evaluated
}

// postpone has a removal tried again later.
func (p *plan) postpone(uid types.UID, until time.Time) {
	f := p.failures[uid]
	f.until = until
	p.failures[uid] = f
}

// forget forgets the attempts to remove an object that is gone.
func (p *plan) forget(uid types.UID) {
	delete(p.failures, uid)
	delete(p.evaluations.kept, uid)
}

// release has the survey note what was released.
func (p *plan) release(now time.Time) {
	if len(p.released) == 0 {
		return
	}
	released := p.released
	p.released = references.Set{}
	p.survey.Released(now, func(kind schema.GroupKind, namespace, name string) bool {
		return kind.Group == "" && released.Refers(references.Kind(kind.Kind), namespace, name)
	})
}

// newPlan returns the plan of a policy. The caller holds mu.
func (r *Retainer) newPlan(of *policyset.Retention) *plan {
	p := &plan{Retention: of, released: references.Set{}, failures: map[types.UID]failure{}, removed: map[retain.Reason]int64{}, dueSince: dueSince{}}
	p.evaluations.forget()
	r.clear(p)
	return p
}

// clear forgets the objects of a plan, and what was decided about them. The caller holds mu.
func (r *Retainer) clear(p *plan) {
	p.survey = retention.New(p.Evaluated(func(kind schema.GroupKind) bool { return p.kinds[kind] }, r.options.Ignored, r.lookup))
	p.seen, p.pending, p.evaluated = seen{}, nil, false
}

// inherit takes over what is counted since the operator started.
func (p *plan) inherit(old *plan) {
	p.removed, p.delays, p.failed, p.failedAt, p.failure, p.served = old.removed, old.delays, old.failed, old.failedAt, old.failure, old.served
}

// setInterested sets which policies an event concerns. The caller holds mu.
func (r *Retainer) setInterested() {
	r.interested, r.referred = map[place][]*plan{}, map[string][]*plan{}
	for _, p := range r.plans {
		for kind := range p.kinds {
			at := place{kind, p.Key.Namespace}
			r.interested[at] = append(r.interested[at], p)
		}
		if p.refersTo() {
			r.referred[p.Key.Namespace] = append(r.referred[p.Key.Namespace], p)
		}
	}
}

// apply has the policies in force followed. It returns when that is to be tried again because of types that are not known; 0: not.
func (r *Retainer) apply(ctx context.Context, all []*policyset.Retention) time.Duration {
	types := r.options.Catalog()
	r.mu.Lock()
	r.setPlans(all)
	for _, p := range r.plans {
		p.setKinds(p.Kinds(types))
	}
	r.setInterested()
	r.setUses(types)
	ended := r.follow(ctx, types, r.wanted())
	r.mu.Unlock()
	for _, f := range ended {
		f.end()
	}
	signal(r.wake)
	again := r.proveAbsent(ctx, types)
	signal(r.wake)
	r.wakeWorkers() // what another policy kept may not be kept any more
	signal(r.changed)
	return again
}

// setPlans sets the plans to those of the policies in force.
func (r *Retainer) setPlans(all []*policyset.Retention) {
	plans, of := map[types.UID]*plan{}, map[string]int{}
	sorted := slices.SortedFunc(slices.Values(all), func(a, b *policyset.Retention) int {
		return cmp.Or(a.Object.GetCreationTimestamp().Compare(b.Object.GetCreationTimestamp().Time), cmp.Compare(a.Policy.String(), b.Policy.String()))
	})
	for _, policy := range sorted {
		if policy.Object.GetDeletionTimestamp() != nil {
			continue
		}
		uid := policy.Object.GetUID()
		p, known := r.plans[uid]
		if !known || !p.is(policy) {
			old := p
			p = r.newPlan(policy)
			if known {
				p.inherit(old)
			}
		}
		maps.DeleteFunc(p.failures, func(_ types.UID, f failure) bool { return f.count == 0 }) // another policy may keep it no longer
		p.evaluations.forget()
		of[policy.Key.Namespace]++
		p.problem = ""
		switch most := limitOf(policy.Key.Namespace); {
		case !policy.Problem.IsZero():
			p.problem = policy.Problem.Message
		case of[policy.Key.Namespace] > most:
			p.problem = fmt.Sprintf("there are more than %d retention policies %s, and this is one of the latest: delete some", most, whereOf(policy.Key.Namespace))
		}
		plans[uid] = p
	}
	r.plans = plans
}

func whereOf(namespace string) string {
	if namespace == "" {
		return "of the cluster"
	}
	return "in this namespace"
}

func limitOf(namespace string) int {
	if namespace == "" {
		return maxOfCluster
	}
	return maxOfNamespace
}

// setKinds sets the kinds of a plan. New ones have to be listed.
func (p *plan) setKinds(kinds map[schema.GroupKind]bool) {
	unread := map[schema.GroupKind]bool{}
	for kind := range kinds {
		if !p.kinds[kind] || p.unread[kind] {
			unread[kind] = true
		}
	}
	for kind := range p.kinds {
		if !kinds[kind] {
			for o := range p.survey.Of(kind) {
				p.survey.Forget(o.UID)
			}
		}
	}
	p.kinds, p.unread = kinds, unread
}

// wanted returns the kinds that have to be followed. The caller holds mu.
func (r *Retainer) wanted() map[schema.GroupKind]bool {
	wanted := map[schema.GroupKind]bool{}
	byNamespace := false
	for _, p := range r.plans {
		if p.problem == "" {
			maps.Copy(wanted, p.kinds)
			byNamespace = byNamespace || p.SelectsByNamespace()
		}
	}
	if r.uses != nil {
		maps.Copy(wanted, r.uses.kinds)
	}
	if byNamespace {
		wanted[namespaceKind] = true
		if r.namespaces == nil {
			r.namespaces = map[string]namespaceLabels{}
		}
	} else {
		r.namespaces, r.listed = nil, false
	}
	return wanted
}

var namespaceKind = schema.GroupKind{Kind: "Namespace"}

// byNumber reports whether a limit of numbers removes something: then the decision depends on other objects.
func byNumber(decisions []retention.Decision) bool {
	return slices.ContainsFunc(decisions, func(d retention.Decision) bool { return d.Reason == retain.Excess || d.Reason == retain.Surplus })
}
