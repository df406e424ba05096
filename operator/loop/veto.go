package loop

import (
	"context"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/veto"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// vetoTimeout bounds an answer: the other collector's worker waits for it.
	vetoTimeout = 900 * time.Millisecond

	// catchUp is how long the watch is given to show that the owners are gone that
	// the other collector has found to be.
	catchUp     = 300 * time.Millisecond
	catchUpPoll = 5 * time.Millisecond
)

// Vetoes is the webhook that is asked about what the other collector wants to delete,
// with what else the API server asks.
func (l *Loop) Vetoes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+modules.VetoPath+"/{policies}", func(w http.ResponseWriter, r *http.Request) {
		l.vetoes(r.PathValue("policies")).ServeHTTP(w, r)
	})
	mux.Handle("POST "+modules.VetoPath, l.vetoes("")) // as the operator before this one has it
	mux.Handle("POST "+modules.CanaryPath, veto.Witness(func(ctx context.Context, user string, object types.UID) {
		ctx, cancel := context.WithTimeout(ctx, vetoTimeout)
		defer cancel()
		l.keeper.Finished(ctx, user, object)
	}))
	mux.Handle("POST "+modules.PlacePath+"{name}", veto.Placer(l.keeper.Placed))
	return mux
}

// vetoes answers what the API server asks on account of the policies of some state.
func (l *Loop) vetoes(state string) http.Handler {
	return veto.Handler(func(ctx context.Context, r veto.Request) veto.Answer {
		ctx, cancel := context.WithTimeout(ctx, vetoTimeout)
		defer cancel()
		answer := l.judge(ctx, state, r)
		note(&l.metrics.series.kinds, r.Kind.GroupKind())
		l.metrics.vetoes.WithLabelValues(map[bool]string{true: "passed", false: "refused"}[answer.Passes], r.Kind.Group, r.Kind.Kind).Inc()
		return answer
	})
}

// CertificateChanged has the API server told what the webhook's certificate is now
// signed by.
func (l *Loop) CertificateChanged() { l.keeper.CertificateChanged() }

// judge answers whether the other collector may delete an object. What is not known
// for certain is refused, as long as a policy might have a say: it comes again, and
// what a policy has deleted we delete ourselves if it does not come in time.
func (l *Loop) judge(ctx context.Context, state string, r veto.Request) veto.Answer {
	o, upToDate := graph.ObjectOf(r.Kind, r.Object), state == "" || l.upTo == nil || l.upTo(state)
	set := l.policiesInForce()
	resource, served := l.types().Preferred(r.Kind.GroupKind())
	switch {
	case set == nil:
		return l.refuse(r, o, "the policies have not been read yet")
	case !upToDate:
		return l.refuse(r, o, "the policies have changed, and have not been read yet")
	case !served:
		return l.refuse(r, o, "objects of this kind are not known yet")
	case !l.listed(): // policies may turn on an object's dependents
		return l.refuse(r, o, "not all objects have been listed yet")
	}
	l.known.Apply(graph.Read{Object: o})
	if why := l.decidedAbove(ctx, o); why != "" {
		return l.refuse(r, o, why)
	}
	if !set.Has(hostabi.HookCollect, resource.Version.GroupResource(), o.Namespace) {
		return veto.Answer{Passes: true}
	}
	if resource.Version.Version != r.Kind.Version {
		r.Object = nil // policies are shown objects in one version
	}
	governed, err := l.consultant.Governs(ctx, consult.Question{Hook: hostabi.HookCollect, Facts: decide.Facts{Object: o}, Given: r.Object})
	switch {
	case err == nil && governed == consult.Nobody:
		return veto.Answer{Passes: true}
	case err != nil:
		governed = consult.Enforced // it may be
	}
	return l.judgeGoverned(ctx, r, o, governed)
}

// refuse refuses what is not decided: only that is recorded, as what is decided is.
func (l *Loop) refuse(r veto.Request, o graph.Object, why string) veto.Answer {
	if !r.DryRun {
		l.noteRefusal(o, why)
	}
	return veto.Refuse("%s", why)
}

// judgeGoverned answers where a policy governs the object, or watches it.
func (l *Loop) judgeGoverned(ctx context.Context, r veto.Request, o graph.Object, by consult.Rule) veto.Answer {
	unknown := func(why string) veto.Answer {
		if by != consult.Enforced {
			return veto.Answer{Passes: true}
		}
		return l.refuse(r, o, why)
	}
	id := graph.IDOf(o.UID)
	facts, ok := l.ownerless(ctx, o)
	if !ok {
		return unknown("its owners are not known to be gone yet")
	}
	facts.Object.ResourceVersion = o.ResourceVersion // what the API server is about to delete
	d, err := l.decide(ctx, id, facts, r.Object)
	if err != nil || d.opinion.Changed != nil {
		return unknown("it could not be judged in time")
	}
	if d.passes(r) {
		d.plan.Action = nil // it is not ours
		if d.plan.Reason == decide.NothingToDo || d.plan.Reason == decide.LeftToCollector {
			d.plan.Reason = decide.OwnersAbsent
		}
		l.note(d.facts, d.plan, d.opinion, outcome{took: l.now().Sub(d.began)})
		return veto.Answer{Passes: true}
	}
	if l.gate.get() == Open && !r.DryRun {
		if _, err := l.carryOut(ctx, d); err != nil {
			l.log.V(1).Info("Could not carry out at once what was decided", "object", record.ObjectOf(o).String(), "error", err.Error())
		}
		l.known.again([]graph.ID{id})
	}
	return veto.Refuse("%s, by %s", d.plan.Reason, l.by(d.opinion))
}

// passes reports whether what was decided is what the other collector is about to do.
func (d decision) passes(r veto.Request) bool {
	v, contested := d.opinion.Verdict, false
	for _, a := range d.opinion.Asked {
		contested = contested || a.Policy.Enforce
	}
	if d.opinion.Fault != nil || !contested {
		return d.opinion.Fault == nil
	}
	_, deletes := d.plan.Action.(decide.Delete)
	return (deletes || d.plan.Reason == decide.LeftToCollector) && d.opinion.Usual && string(v.Propagation) == string(r.Propagation)
}

// factsOf gathers the facts about an object that the other collector wants to delete. That
// one may collect what is ignored here.
func (l *Loop) factsOf(ctx context.Context, o graph.Object) (decide.Facts, bool) {
	facts, ok := l.gatherer.Gather(ctx, graph.IDOf(o.UID))
	if resource, served := l.types().Preferred(o.Kind.GroupKind()); ok || !served || resource.Collected {
		return facts, ok
	}
	facts = l.gatherer.Unwatched(ctx, o)
	for _, kind := range l.known.ByKind(graph.IDOf(o.UID)) {
		facts.Dependents += kind.Count
	}
	return facts, true
}

// catchUpUntil is for how long an object's owners are looked at. Those of one with many are
// looked at once: it is asked about again.
func (l *Loop) catchUpUntil(o graph.Object) time.Time {
	if len(o.Owners) > graph.ManyOwners {
		return l.now()
	}
	return l.now().Add(catchUp)
}

// ownerless gathers facts until they say that no owner is left, for a moment.
func (l *Loop) ownerless(ctx context.Context, o graph.Object) (decide.Facts, bool) {
	due := l.catchUpUntil(o)
	for {
		facts, ok := l.factsOf(ctx, o)
		if ok && decide.Classify(facts).Kind == decide.Ownerless {
			return facts, true
		}
		if ctx.Err() != nil || !l.now().Before(due) {
			return facts, false
		}
		wait(ctx, catchUpPoll)
	}
}

// decidedAbove says why an object may not go on account of an owner of which a policy
// has not decided yet what becomes of its dependents, or has decided that they stay:
// a client asked for Foreground, and the policy overrides that. The other collector has
// found that no owner stays; until that is known here, too, there may be such a one.
func (l *Loop) decidedAbove(ctx context.Context, o graph.Object) string {
	due := l.catchUpUntil(o)
	for {
		known, why := l.lookAbove(ctx, o)
		if known || ctx.Err() != nil || !l.now().Before(due) {
			return why
		}
		wait(ctx, catchUpPoll)
	}
}

// lookAbove looks once, and reports whether that settles it.
func (l *Loop) lookAbove(ctx context.Context, o graph.Object) (known bool, why string) {
	doubts := l.standingAbove(ctx, o) // it reads owners that were never seen
	for _, ref := range o.Owners {
		if ctx.Err() != nil {
			return false, "its owners could not be looked at in time"
		}
		owner := graph.IDOf(ref.UID)
		if !l.known.isHeldTerminating(owner) {
			continue
		}
		facts, ok := l.gatherer.Gather(ctx, owner)
		if !ok || !facts.Object.Held || !facts.Object.Terminating {
			continue
		}
		if why := l.decided(ctx, o, facts); why != "" {
			return true, why
		}
		doubts = slices.DeleteFunc(doubts, func(d metav1.OwnerReference) bool { return d.UID == ref.UID })
	}
	if len(doubts) != 0 {
		return false, "its owner " + doubts[0].Kind + " " + doubts[0].Name + " is not known to be gone yet"
	}
	return true, ""
}

// standingAbove are the references to owners that stay, as far as is known, and of which a
// policy may override what becomes of their dependents.
func (l *Loop) standingAbove(ctx context.Context, o graph.Object) []metav1.OwnerReference {
	refs := slices.DeleteFunc(slices.Clone(o.Owners), func(ref metav1.OwnerReference) bool { return !l.overridden(ref, o.Namespace) })
	if len(refs) == 0 || o.Terminating {
		return nil
	}
	facts, ok := l.factsOf(ctx, o)
	if !ok || facts.Object.Truncated {
		return refs
	}
	refs = nil
	for _, owner := range facts.Owners {
		stays := owner.Standing == decide.Present || owner.Standing == decide.Unknown
		if stays && l.overridden(owner.Reference, o.Namespace) {
			refs = append(refs, owner.Reference)
		}
	}
	return refs
}

// overridden reports whether a policy may override what a client asks for that deletes
// the owner.
func (l *Loop) overridden(ref metav1.OwnerReference, namespace string) bool {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	return l.enforced(hostabi.HookPropagate, kind, namespace, func(p *policies.Policy) bool { return p.Override })
}

// decided says why an object may not go on account of an owner that is being deleted,
// and is held.
func (l *Loop) decided(ctx context.Context, o graph.Object, facts decide.Facts) string {
	opinion, err := l.consultant.Ask(ctx, consult.Question{
		Hook: hostabi.HookPropagate, Facts: facts, Requested: requested(facts.Object), Attempt: 1,
	})
	owner := record.ObjectOf(facts.Object)
	if err != nil || opinion.Changed != nil || opinion.Fault != nil {
		return "what becomes of the dependents of " + owner.String() + " is not decided yet"
	}
	decision := opinion.Verdict.Decision
	for _, exception := range opinion.Verdict.Dependents {
		if exception.Group == o.Kind.Group && exception.Kind == o.Kind.Kind {
			decision = exception.Decision
		}
	}
	if decision == hostabi.DecisionOrphan || decision == hostabi.DecisionWait {
		return "it stays for now although " + owner.String() + " is being deleted, by " + l.by(opinion)
	}
	return ""
}
