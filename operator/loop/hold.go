package loop

import (
	"context"
	"errors"
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
	if withheld := (*consult.WithheldError)(nil); errors.As(err, &withheld) && l.keeper != nil {
		l.keeper.Withheld(withheld.Policy, withheld.Why)
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

func (l *Loop) exceptKind(ctx context.Context, owner graph.Object, kind schema.GroupKind, decision hostabi.Decision) error {
	resource, ok := l.types().Preferred(kind)
	if !ok {
		absent, err := l.absent(ctx, kind)
		if err == nil && !absent {
			err = fmt.Errorf("its types are not discovered yet")
		}
		return err // a kind that is not served has no objects
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
	var refs []metav1.OwnerReference
	for _, ref := range dependent.Owners {
		if ref.UID == owner.UID {
			refs = append(refs, ref)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	plan := decide.Plan{Reason: decide.ExceptedByPolicy}
	switch {
	case decision == hostabi.DecisionOrphan, len(refs) != len(dependent.Owners):
		plan.Action = decide.DropReferences{Object: dependent, References: refs, Leave: true}
	case decision == hostabi.DecisionDelete && !dependent.Terminating:
		plan.Action = decide.Delete{Object: dependent, Propagation: metav1.DeletePropagationBackground}
	default:
		return nil
	}
	began := l.now()
	result, err := l.actor.Do(ctx, plan.Action)
	l.note(decide.Facts{Object: dependent}, plan, consult.Opinion{}, outcome{result: result, err: err, took: l.now().Sub(began)})
	if err == nil && result == act.Changed {
		err = fmt.Errorf("%s %s has changed meanwhile", dependent.Kind.Kind, dependent.Name)
	}
	return err
}
