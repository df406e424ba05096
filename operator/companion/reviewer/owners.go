package reviewer

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/order"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// gather gathers the facts about an object, also of a resource that Gleaner ignores and the
// built-in collector doesn't.
func (r *Reviewer) gather(ctx context.Context, o graph.Object) (decide.Facts, bool) {
	facts, ok := r.options.Collector.Gatherer.Gather(ctx, graph.IDOf(o.UID))
	if resource, served := r.options.Types().Preferred(o.Kind.GroupKind()); ok || !served || resource.Collected {
		return facts, ok
	}
	facts = r.options.Collector.Gatherer.GatherUnwatched(ctx, o)
	for _, kind := range r.store.DependentsByKind(graph.IDOf(o.UID)) {
		facts.Dependents += kind.Count
	}
	return facts, true
}

// ownerDeadline returns until when to look for an object's owners. With many owners, they are
// looked for once: the built-in collector retries.
func (r *Reviewer) ownerDeadline(o graph.Object) time.Time {
	if len(o.Owners) > graph.ManyOwners {
		return r.options.Now()
	}
	return r.options.Now().Add(maxWatchDelay)
}

// ownerless gathers facts until they show that the object has no owner, for a limited time.
func (r *Reviewer) ownerless(ctx context.Context, o graph.Object) (decide.Facts, bool) {
	due := r.ownerDeadline(o)
	for {
		facts, ok := r.gather(ctx, o)
		if ok && decide.Classify(facts).Kind == decide.Ownerless {
			return facts, true
		}
		if ctx.Err() != nil || !r.options.Now().Before(due) {
			return facts, false
		}
		sleep(ctx, watchPollInterval)
	}
}

// keptByOwner returns why an owner keeps an object: a policy has not decided about the
// owner's dependents yet, or has decided to keep them although a client has requested
// Foreground. The built-in collector has found that no owner remains; as long as that is
// not known here, there may be such an owner.
func (r *Reviewer) keptByOwner(ctx context.Context, o graph.Object) string {
	due := r.ownerDeadline(o)
	for {
		known, reason := r.checkOwners(ctx, o)
		if known || ctx.Err() != nil || !r.options.Now().Before(due) {
			return reason
		}
		sleep(ctx, watchPollInterval)
	}
}

// checkOwners checks the owners once, and reports whether the answer is final.
func (r *Reviewer) checkOwners(ctx context.Context, o graph.Object) (known bool, reason string) {
	unknown := r.remainingOwners(ctx, o) // reads owners that were never seen
	for _, ref := range o.Owners {
		if ctx.Err() != nil {
			return false, "its owners could not be read in time"
		}
		owner := graph.IDOf(ref.UID)
		if !r.store.IsHeldTerminating(owner) {
			continue
		}
		facts, ok := r.options.Collector.Gatherer.Gather(ctx, owner)
		if !ok || !facts.Object.Held || !facts.Object.Terminating {
			continue
		}
		if reason := r.decidedFor(ctx, o, facts); reason != "" {
			return true, reason
		}
		unknown = slices.DeleteFunc(unknown, func(u metav1.OwnerReference) bool { return u.UID == ref.UID })
	}
	if len(unknown) != 0 {
		return false, "its owner " + unknown[0].Kind + " " + unknown[0].Name + " is not known to be gone yet"
	}
	return true, ""
}

// remainingOwners returns the references to owners that may remain and for which a policy
// may override what a client has requested.
func (r *Reviewer) remainingOwners(ctx context.Context, o graph.Object) []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(o.Owners), func(ref metav1.OwnerReference) bool { return !r.decider.Overrides(ref, o.Namespace) })
	if len(refs) == 0 || o.Terminating {
		return nil
	}
	facts, ok := r.gather(ctx, o)
	if !ok || facts.Object.Truncated {
		return refs
	}
	refs = nil
	for _, owner := range facts.Owners {
		remains := owner.Status == decide.Present || owner.Status == decide.Unknown
		if remains && r.decider.Overrides(owner.Reference, o.Namespace) {
			refs = append(refs, owner.Reference)
		}
	}
	return refs
}

// decidedFor returns why an owner that is being deleted and has a hold keeps an object; ""
// if it doesn't.
func (r *Reviewer) decidedFor(ctx context.Context, o graph.Object, facts decide.Facts) string {
	evaluation, err := r.decider.Evaluator.Evaluate(ctx, evaluate.Input{
		Hook: hostabi.HookPropagate, Facts: facts, RequestedPropagation: facts.RequestedPropagation(), Attempt: 1,
	})
	owner := record.ObjectOf(facts.Object)
	if err != nil || evaluation.Changed != nil || evaluation.Fault != nil {
		return "the propagation policy for the dependents of " + owner.String() + " is not decided yet"
	}
	decision := evaluation.Verdict.Decision
	for _, exception := range evaluation.Verdict.Dependents {
		if exception.Group == o.Kind.Group && exception.Kind == o.Kind.Kind {
			decision = exception.Decision
		}
	}
	if decision == hostabi.DecisionOrphan || decision == hostabi.DecisionWait {
		return "it is kept for now although " + owner.String() + " is being deleted, by " + evaluation.PolicyName(r.defaultName())
	}
	return r.awaitsWave(owner, evaluation.Verdict, o, facts)
}

// awaitsWave returns a reason to keep an object if its owner deletes dependents in order, and the object's wave has not
// started; "" otherwise.
func (r *Reviewer) awaitsWave(owner record.Object, v hostabi.Verdict, o graph.Object, facts decide.Facts) string {
	wanted, ordered := order.Of(v)
	if !ordered || len(wanted.Waves) == 0 {
		return ""
	}
	status, known := r.options.Collector.OrderStatus(graph.IDOf(facts.Object.UID), o.Kind.GroupKind())
	if known && status.Started {
		return ""
	}
	return "it is kept for now although " + owner.String() + " is being deleted: dependents are deleted in order, and its wave has not started"
}

// sleep waits, or returns when the context ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
