// Package collector reconciles objects. A Decider classifies facts, evaluates policies, and
// chooses a plan; it writes nothing and remembers nothing. A Collector gathers the facts,
// has them decided about, carries out the plan, commits the Memory that comes with it, and
// records the outcome.
package collector

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/policies"
)

// Decider turns facts about an object into a Decision. All fields are required. Its
// methods may be called concurrently.
type Decider struct {
	Evaluator *evaluate.Evaluator
	Types     func() *catalog.Catalog
	Policies  func() *policies.Set // nil until they are known

	// NeedsHold reports whether some objects of a kind need a hold.
	NeedsHold func(schema.GroupKind) bool

	Companion bool // Gleaner runs in addition to the built-in garbage collector
	Now       func() time.Time
}

// Decision is what is to be done about one object, and what that rests on.
type Decision struct {
	Began      time.Time
	Facts      decide.Facts
	Situation  decide.Situation
	Evaluation evaluate.Result
	Result     decide.PolicyResult
	Plan       decide.Plan
	Companion  bool

	// Withheld are the policies that could not be evaluated because their service account
	// may not read the object.
	Withheld []*modulecall.WithheldError
}

// Changed returns the object if it differs from the facts. Then there is no plan.
func (d Decision) Changed() *graph.Object { return d.Evaluation.Changed }

// inert are the situations in which only a client deletes an object, which a policy may
// have to decide about.
var inert = []decide.Kind{decide.Settled, decide.HasUnreadableOwner, decide.HasUnresolvableOwner}

// Decide decides about an object. Given is the object, if it was read already. An error
// means that policies could not be evaluated because of the host.
func (r *Decider) Decide(ctx context.Context, facts decide.Facts, given *unstructured.Unstructured, m Memory) (Decision, error) {
	d, err := r.Evaluate(ctx, decide.Classify(facts), given, m)
	if err != nil || d.Changed() != nil {
		return d, err
	}
	if r.Companion {
		d.Plan = decide.ChooseCompanion(d.Situation, d.Result)
	} else {
		d.Plan = decide.Choose(d.Situation, d.Result)
	}
	if d.Plan.Action == nil && slices.Contains(inert, d.Situation.Kind) {
		r.planHold(ctx, &d)
	}
	return d, nil
}

// Evaluate evaluates the policies about an object, if the situation requires that. There
// is no plan yet.
func (r *Decider) Evaluate(ctx context.Context, s decide.Situation, given *unstructured.Unstructured, m Memory) (Decision, error) {
	now := r.Now()
	d := Decision{Began: now, Facts: s.Facts, Situation: s, Companion: r.Companion}
	q := evaluate.Input{Facts: s.Facts, RequestedPropagation: hostabi.RequestedUnspecified, Attempt: m.attempt(now), Object: given}
	switch s.Kind {
	case decide.Ownerless:
		q.Hook = hostabi.HookCollect
	case decide.Held:
		q.Hook, q.RequestedPropagation = hostabi.HookPropagate, s.Facts.RequestedPropagation()
	default:
		d.Result = decide.PolicyResult{Attempt: q.Attempt}
		return d, nil
	}
	var err error
	if d.Evaluation, err = r.Evaluator.Evaluate(ctx, q); err != nil {
		return d, err
	}
	for _, asked := range d.Evaluation.Evaluations {
		d.withhold(asked.Fault)
	}
	d.Result = judge(q, d.Evaluation, r.Now())
	d.Result.KeptBefore = m.Kept
	d.Result.MaybeDenied = r.Companion && s.Kind == decide.Ownerless && r.IsVetoed(s.Facts.Object)
	return d, nil
}

// withhold records that an object is withheld from a policy, if that is the error, and
// reports whether it is.
func (d *Decision) withhold(err error) bool {
	found := (*modulecall.WithheldError)(nil)
	if !errors.As(err, &found) {
		return false
	}
	d.Withheld = append(d.Withheld, found)
	return true
}

// judge returns what the evaluations of policies mean for the plan.
func judge(q evaluate.Input, o evaluate.Result, now time.Time) decide.PolicyResult {
	j := decide.PolicyResult{
		Verdict: o.Verdict, Fault: o.Fault != nil, State: o.State, Now: now,
		ByPolicy: o.DecidedBy != nil || o.EarlierPolicy != "", MatchesDefault: o.MatchesDefault, Attempt: q.Attempt,
	}
	for _, a := range o.Evaluations {
		j.Enforced, j.Monitored = j.Enforced || a.Policy.Enforce, j.Monitored || !a.Policy.Enforce
	}
	if o.Stored {
		j.StoredState = o.State
	}
	if o.DecidedBy == nil {
		return j
	}
	if len(o.Verdict.State) != 0 {
		j.State.ModuleState, j.State.Policy = o.Verdict.State, o.DecidedBy.String()
	}
	if q.Hook == hostabi.HookPropagate && o.Verdict.Decision != hostabi.DecisionWait {
		j.State.Propagation = &objectstate.Propagation{
			Policy: o.DecidedBy.String(), Decision: string(o.Verdict.Decision), Requested: string(q.RequestedPropagation),
			Reason: o.Verdict.Reason, Dependents: o.Verdict.Dependents, Order: o.Verdict.Order, GracePeriodSeconds: o.Verdict.GracePeriodSeconds,
		}
	}
	return j
}

// planHold plans to add or remove the hold of an object about which there is nothing else
// to be done.
func (r *Decider) planHold(ctx context.Context, d *Decision) {
	o := d.Facts.Object
	if o.Terminating || !o.Held && !r.NeedsHold(o.Kind.GroupKind()) {
		return
	}
	wanted, known, err := r.Evaluator.NeedsHold(ctx, d.Facts)
	if d.withhold(err) {
		err = nil // what it would say is known well enough
	}
	if err != nil || !known {
		d.Plan.Retry = d.Plan.Retry || err != nil
		return
	}
	if hold := decide.ChooseHold(o, wanted); hold.Action != nil {
		hold.Retry = d.Plan.Retry
		d.Plan = hold
	}
}

// IsVetoed reports whether the API server calls the webhook before the built-in collector
// deletes an object, be it governed or not. A request that was not answered in time may
// not be repeated for a quarter of an hour.
func (r *Decider) IsVetoed(o graph.Object) bool {
	if r.enforces(hostabi.HookCollect, o.Kind.GroupKind(), o.Namespace, func(*policies.Policy) bool { return true }) {
		return true
	}
	return slices.ContainsFunc(o.Owners, func(ref metav1.OwnerReference) bool { return r.Overrides(ref, o.Namespace) })
}

// Overrides reports whether a policy may override what a client requests that deletes an
// owner.
func (r *Decider) Overrides(ref metav1.OwnerReference, namespace string) bool {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	return r.enforces(hostabi.HookPropagate, kind, namespace, func(p *policies.Policy) bool { return p.OverrideExplicit })
}

// enforces reports whether a policy in Enforce mode that matches governs a kind. If
// discovery of the kind's group has failed since the start, the kind may be of any resource in
// that group.
func (r *Decider) enforces(hook hostabi.Hook, kind schema.GroupKind, namespace string, matches func(*policies.Policy) bool) bool {
	types := r.Types()
	resource, ok := types.Preferred(kind)
	if !ok && !types.IsFailing(kind.Group) {
		return false // it is not served
	}
	candidates := r.Policies().Candidates(hook, resource.Version.GroupResource(), namespace)
	if !ok {
		candidates = r.Policies().CandidatesOfGroup(hook, kind.Group, namespace)
	}
	for p := range candidates {
		if p.Enforce && matches(p) {
			return true
		}
	}
	return false
}

// IsIgnored reports whether an object is left to the built-in collector, unread: no policy
// governs it, and Gleaner has written nothing to it.
func (r *Decider) IsIgnored(o graph.Object, m Memory) bool {
	set := r.Policies()
	if !r.Companion || set == nil || m.Kept || o.Held || o.HasState || r.NeedsHold(o.Kind.GroupKind()) {
		return false
	}
	resource, known := r.Types().Preferred(o.Kind.GroupKind())
	return known && !set.Has(hostabi.HookCollect, resource.Version.GroupResource(), o.Namespace) && !r.IsVetoed(o)
}
