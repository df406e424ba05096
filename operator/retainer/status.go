package retainer

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

// maxNext is the number of objects in PolicyStatus.Next.
const maxNext = 10

// Status is what is observed of all policies, by the UIDs of their resources.
type Status map[types.UID]PolicyStatus

// PolicyStatus is what is observed of a policy.
type PolicyStatus struct {
	Name       string
	Generation int64

	// Problem is why nothing is decided, and Listing is true until all objects were listed.
	Problem    string
	TooMany    bool // it selects too many objects, or there are too many policies
	Listing    bool
	Unreadable string // why objects can't be read now; "": they can

	// UsesUnknown is why it is not known which objects are used; "": it is, or does not matter.
	UsesUnknown string

	// Failing is the number of due objects of which the last removal has failed, or about which policies could not be evaluated.
	Failing int64

	seen

	// KeptByPolicies is the number of objects that the limits of the policy remove, and that policies with the hook retain keep.
	KeptByPolicies int64

	Removed  map[retain.Reason]int64
	Delays   Delays
	Failures int64
	Waiting  bool      // for a pause or a budget
	FailedAt time.Time // zero: nothing has failed
	Failure  string
	KeptBy   string // an object that another policy keeps, and why; "": there is none
}

// Status returns the value that is published.
func (r *Retainer) Status() *latest.Value[Status] { return &r.status }

// publish publishes what is observed until ctx ends.
func (r *Retainer) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		}
		began := time.Now()
		r.store()
		pause(ctx, max(minPublish, maxShare*time.Since(began)))
	}
}

func (r *Retainer) store() {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := Status{}
	now := r.options.Now()
	unknown := ""
	if r.uses != nil {
		unknown = r.uses.unknown()
	}
	for uid, p := range r.plans {
		s := p.status(now, unknown)
		s.Unreadable = r.unreadable(p)
		all[uid] = s
	}
	r.status.Store(all)
}

// unreadable returns why some of what a policy selects can't be read now; "" if it can. The caller holds mu.
func (r *Retainer) unreadable(p *plan) string {
	for kind := range p.kinds {
		if f := r.followed[kind]; f != nil && f.failure != "" {
			return f.failure
		}
	}
	return ""
}

// status returns what is observed of a policy.
func (p *plan) status(now time.Time, usesUnknown string) PolicyStatus {
	seen, kept := p.withoutKept(now)
	s := PolicyStatus{
		Name: p.Policy.String(), Generation: p.Object.GetGeneration(), Problem: p.problem, TooMany: p.problem != "" && p.Problem.IsZero() || !p.overflowed.IsZero(),
		Listing: !p.evaluated || len(p.unread) != 0, Failing: p.failing(),
		seen: seen, KeptByPolicies: kept, Removed: maps.Clone(p.removed), Delays: p.delays, Failures: p.failed, Waiting: now.Before(p.waitsUntil), FailedAt: p.failedAt, Failure: p.failure, KeptBy: p.keptBy,
	}
	if p.refersTo() {
		s.UsesUnknown = usesUnknown
	}
	if !p.overflowed.IsZero() {
		s.Problem = "it selects too many objects, by itself or together with the other policies of its namespace: select fewer"
	}
	return s
}

// withoutKept returns what the last evaluation has found without what policies with the hook retain keep, and the number of these.
func (p *plan) withoutKept(now time.Time) (seen, int64) {
	s, kept := p.seen, int64(0)
	for uid := range p.evaluations.kept {
		if p.evaluations.keeps(uid, now) && p.survey.Removes(uid) {
			kept++
		}
	}
	if kept == 0 {
		return s, 0
	}
	s.Due -= min(kept, s.Due)
	s.Next = slices.DeleteFunc(slices.Clone(s.Next), func(d retention.Decision) bool { return d.Due.IsZero() && p.evaluations.keeps(d.UID, now) })
	return s, kept
}

// failing returns the number of due objects that can't be removed, or about which policies can't be evaluated.
func (p *plan) failing() (n int64) {
	if len(p.failures) == 0 && len(p.evaluations.resting) == 0 {
		return 0
	}
	for _, d := range p.pending {
		_, kept := p.evaluations.kept[d.UID]
		if !kept && p.isPending(d.UID) && (p.failures[d.UID].count != 0 || p.evaluations.resting[d.Namespace].count != 0) {
			n++
		}
	}
	return n
}

// seen is what an evaluation has found.
type seen struct {
	Selected, Due int64
	Kept          map[retain.Reason]int64
	Next          []retention.Decision // what is removed next, what is due first
	Problems      []string
}

func summarize(r retention.Result) seen {
	s := seen{
		Selected: int64(len(r.Removals) + len(r.Kept)), Due: int64(len(r.Removals)), Kept: map[retain.Reason]int64{}, Problems: r.Problems,
		Next: slices.Clone(r.Removals[:min(len(r.Removals), maxNext)]),
	}
	var later []retention.Decision
	for _, d := range r.Kept {
		if d.Reason != retain.WithinLimits && d.Reason != retain.TooYoung {
			s.Kept[d.Reason]++
		}
		if !d.Due.IsZero() {
			later = append(later, d)
		}
	}
	slices.SortFunc(later, func(a, b retention.Decision) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	s.Next = append(s.Next, later[:min(len(later), maxNext-len(s.Next))]...)
	return s
}
