package loop

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modules"
)

// policiesChanged has everything looked at again that the policies in force, or
// the types that they are about, may concern.
func (l *Loop) policiesChanged() {
	l.known.sweep()
	if l.finalizers != nil {
		l.finalizers.Poke()
	}
	set := l.policiesInForce()
	if set == nil {
		return // holds stay as they are
	}
	kinds := map[schema.GroupKind]struct{}{}
	for _, r := range l.types().Collected() {
		for _, p := range set.All() {
			if p.Enforce && !p.Unsure && p.Answers(hostabi.HookPropagate) && p.Selects(r.Version.GroupResource()) {
				kinds[r.GroupKind()] = struct{}{}
				break
			}
		}
	}
	l.known.hold(kinds)
}

// heldByPlace counts the objects with a hold.
func (l *Loop) heldByPlace() map[modules.Place]int {
	counts := map[modules.Place]int{}
	for place, n := range l.known.heldByPlace() {
		if r, ok := l.types().Preferred(place.kind); ok {
			counts[modules.Place{Resource: r.Version.GroupResource(), Namespace: place.namespace}] += n
		}
	}
	return counts
}

// serves reports whether discovery has seen a resource, and whether its objects are in
// namespaces.
func (l *Loop) serves(r schema.GroupResource) (served, namespaced bool) {
	all := l.types().Collected()
	i := slices.IndexFunc(all, func(t catalog.Resource) bool { return t.Version.GroupResource() == r })
	return i >= 0, i >= 0 && all[i].Namespaced
}

// kindOf is the kind of a resource, if discovery has seen it.
func (l *Loop) kindOf(r schema.GroupResource) (schema.GroupKind, bool) {
	for _, t := range l.types().Collected() {
		if t.Version.GroupResource() == r {
			return t.GroupKind(), true
		}
	}
	return schema.GroupKind{}, false
}

// keep plans the hold of an object about which there is nothing else to be done.
func (l *Loop) keep(ctx context.Context, facts decide.Facts, plan decide.Plan) decide.Plan {
	o := facts.Object
	if o.Terminating || !o.Held && !l.known.holds(o.Kind.GroupKind()) {
		return plan
	}
	wanted, known, err := l.consultant.Holds(ctx, facts)
	if l.withheld(err) {
		err = nil // it is as if it were known
	}
	if err != nil || !known {
		plan.Retry = plan.Retry || err != nil
		return plan
	}
	if hold := decide.Keep(o, wanted); hold.Action != nil {
		hold.Retry = plan.Retry
		return hold
	}
	return plan
}

// except carries out the exceptions of a decision on an object's dependents, before
// the decision itself is. The dependents are listed for that: one that the graph
// has not heard of yet would go with the rest.
func (l *Loop) except(ctx context.Context, plan decide.Plan, opinion consult.Opinion) error {
	owner, ok := decide.Target(plan.Action)
	if !ok || len(opinion.Verdict.Dependents) == 0 || l.options.DryRun {
		return nil
	}
	switch action := plan.Action.(type) {
	case decide.Propagate:
	case decide.RemoveFinalizer:
		if action.Finalizer != graph.Hold {
			return nil
		}
	default:
		return nil // it is not carried out yet
	}
	for _, exception := range opinion.Verdict.Dependents {
		kind := schema.GroupKind{Group: exception.Group, Kind: exception.Kind}
		if err := l.exceptKind(ctx, owner, kind, exception.Decision); err != nil {
			return fmt.Errorf("make an exception of %s: %w", kind, err)
		}
	}
	return nil
}

// leave has an owner take leave of its dependents while it still has its hold, where
// they are to stay. A client may delete it once more, as people do where kubectl delete
// takes its time: that takes the orphan finalizer off, and what had not been let
// go by then would share the owner's fate.
func (l *Loop) leave(ctx context.Context, plan decide.Plan) error {
	action, ok := plan.Action.(decide.RemoveFinalizer)
	owner := action.Object
	if !ok || action.Finalizer != graph.Hold || !owner.Terminating || !owner.Orphan || l.options.Beside || l.options.DryRun {
		return nil
	}
	for _, id := range l.known.Dependents(graph.IDOf(owner.UID)) {
		view, ok := l.known.Look(id)
		refs := referencesTo(owner, view.Object)
		if !ok || len(refs) == 0 {
			continue
		}
		if err := l.leaveOne(ctx, view.Object, refs, decide.OwnerOrphans); err != nil {
			return fmt.Errorf("take leave of a dependent: %w", err)
		}
	}
	return nil
}

func (l *Loop) exceptKind(ctx context.Context, owner graph.Object, kind schema.GroupKind, decision hostabi.Decision) error {
	resource, ok := l.types().Preferred(kind)
	if !ok {
		absent, err := l.absent(ctx, kind)
		if err == nil && !absent {
			err = fmt.Errorf("its types are not discovered yet")
		}
		return err // a kind that is not served has no objects
	}
	if !resource.Namespaced && owner.Namespace != "" {
		return nil // what is in no namespace has no owner in one (G-34)
	}
	client := l.working.Resource(resource.Version).Namespace(owner.Namespace)
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	return list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		meta, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("listed a %T", item)
		}
		return l.exceptOne(ctx, owner, graph.ObjectOf(resource.GroupVersionKind(), meta), decision)
	})
}

// exceptOne deletes a dependent that would be orphaned, or orphans one that would
// be deleted. One that has other owners is nobody's alone: then it only loses the
// reference.
func (l *Loop) exceptOne(ctx context.Context, owner, dependent graph.Object, decision hostabi.Decision) error {
	refs := referencesTo(owner, dependent)
	switch {
	case len(refs) == 0:
		return nil
	case decision == hostabi.DecisionOrphan, len(refs) != len(dependent.Owners):
		return l.leaveOne(ctx, dependent, refs, decide.ExceptedByPolicy)
	case decision == hostabi.DecisionDelete && !dependent.Terminating:
		return l.collectOne(ctx, dependent)
	default:
		return nil
	}
}

// collectOne deletes a dependent that is to go although its owner's others stay. It
// goes as what has lost its owners does: a policy may keep it, and a finalizer that was
// put there beforehand says what becomes of its own dependents (G-49).
func (l *Loop) collectOne(ctx context.Context, dependent graph.Object) error {
	id := graph.IDOf(dependent.UID)
	s := decide.Situation{Kind: decide.Ownerless, Facts: decide.Facts{Object: dependent}, References: dependent.Owners}
	if view, ok := l.known.Look(id); ok {
		s.Facts.Dependents = view.Dependents
	}
	for _, ref := range dependent.Owners {
		s.Facts.Owners = append(s.Facts.Owners, decide.Owner{
			Reference: ref, Standing: decide.Absent, Reason: "it is being deleted, and its dependents of this kind are to go with it",
		})
	}
	opinion, judgement, err := l.consult(ctx, id, s, nil)
	switch {
	case err != nil:
		return err
	case opinion.Changed != nil:
		return errMeanwhile(dependent)
	case opinion.Fault != nil:
		return fmt.Errorf("whether %s %s is to go is not known: %w", dependent.Kind.Kind, dependent.Name, opinion.Fault)
	}
	plan := decide.Choose(s, judgement)
	if _, deletes := plan.Action.(decide.Delete); !deletes { // to wait for is nothing: its owner is going
		plan = decide.Plan{Reason: decide.KeptByPolicy, Action: decide.DropReferences{Object: dependent, References: dependent.Owners, Leave: true}}
	} else {
		plan.Reason = decide.ExceptedByPolicy
	}
	return l.writeOne(ctx, s.Facts, plan, opinion)
}

// leaveOne drops a dependent's references to an owner.
func (l *Loop) leaveOne(ctx context.Context, dependent graph.Object, refs []metav1.OwnerReference, why decide.Reason) error {
	facts := decide.Facts{Object: dependent}
	for _, ref := range dependent.Owners {
		o := decide.Owner{Reference: ref, Reason: "not looked at"}
		if ref.UID == refs[0].UID {
			o.Standing, o.Reason = decide.Orphaning, "it is being deleted, and a policy or a client has it leave this dependent"
		}
		facts.Owners = append(facts.Owners, o)
	}
	plan := decide.Plan{Reason: why, Action: decide.DropReferences{Object: dependent, References: refs, Leave: true}}
	return l.writeOne(ctx, facts, plan, consult.Opinion{})
}

// writeOne writes to a dependent on its owner's account.
func (l *Loop) writeOne(ctx context.Context, facts decide.Facts, plan decide.Plan, opinion consult.Opinion) error {
	began := l.now()
	result, err := l.actor.Do(ctx, plan.Action)
	l.note(facts, plan, opinion, outcome{result: result, err: err, took: l.now().Sub(began)})
	if err == nil && result == act.Changed {
		err = errMeanwhile(facts.Object)
	}
	return err
}

func errMeanwhile(o graph.Object) error {
	return fmt.Errorf("%s %s has changed meanwhile", o.Kind.Kind, o.Name)
}

// referencesTo are an object's references to an owner.
func referencesTo(owner, dependent graph.Object) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, ref := range dependent.Owners {
		if ref.UID == owner.UID {
			refs = append(refs, ref)
		}
	}
	return refs
}
