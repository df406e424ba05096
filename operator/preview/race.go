package preview

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// deletionPolicies are the propagation policies with which an object may be deleted. The outcome for
// its dependents can depend on them, and they on which of two other objects is processed
// first. In a cluster either is possible; the simulation has only one order.
type deletionPolicies struct {
	foreground bool // while an owner is in foreground deletion
	requested  bool // after that owner is gone: according to the object's own finalizers
}

func (w deletionPolicies) both() bool { return w.foreground && w.requested }

// raceFinder finds objects whose outcome depends on the order in which two others are processed.
type raceFinder struct {
	survey   *survey.Survey
	policies *Reading // nil if they could not be read
	*history
}

// deletionPoliciesOf returns the propagation policies with which each of the objects may be deleted. An
// object with dependents is deleted in the foreground if its owner is in foreground
// deletion at that time, and according to its own finalizers if its owner is gone (G-48,
// G-49). An owner only waits for dependents that block it: it may be gone before the
// others are processed.
func (f raceFinder) deletionPoliciesOf(order []graph.ID) map[graph.ID]deletionPolicies {
	found := map[graph.ID]deletionPolicies{}
	for _, id := range order {
		if _, is := f.foreground[id]; is {
			found[id] = deletionPolicies{foreground: true}
		}
	}
	for again := true; again; {
		again = false
		for _, id := range order {
			if w := f.addDeletionPolicies(id, found); w != found[id] {
				found[id], again = w, true
			}
		}
	}
	return found
}

// addDeletionPolicies adds the propagation policies that an object may have because of its owners.
func (f raceFinder) addDeletionPolicies(id graph.ID, found map[graph.ID]deletionPolicies) deletionPolicies {
	w := found[id]
	from := f.survey.Items[id].Meta
	if !f.collectedByDefault(id) || slices.Contains(from.Finalizers, metav1.FinalizerDeleteDependents) && !hasOrphanFinalizer(from) {
		return w
	}
	waits, sure := false, true
	for _, ref := range from.OwnerReferences {
		owner := found[graph.IDOf(ref.UID)]
		waits = waits || owner.foreground
		sure = sure && owner.foreground && !owner.requested && blocks(ref)
	}
	if f.propagationDecided(id) && (!waits || sure || !f.maySkipPolicy(id)) {
		return w
	}
	return deletionPolicies{foreground: w.foreground || waits, requested: w.requested || !w.foreground || !sure}
}

// collectedByDefault reports whether an object is deleted because of its owners, and no
// policy has decided the propagation.
func (f raceFinder) collectedByDefault(id graph.ID) bool {
	return slices.ContainsFunc(f.decisions[id], func(e record.Entry) bool {
		return e.Action == record.Delete && (e.Policy == "" || e.Policy == builtin.Policy{}.Name())
	})
}

// propagationDecided reports whether a policy has decided about an object's dependents.
func (f raceFinder) propagationDecided(id graph.ID) bool {
	return slices.ContainsFunc(f.decisions[id], func(e record.Entry) bool { return e.Reason == decide.PropagationDecided })
}

// maySkipPolicy reports whether the policy about the dependents of an object does not apply
// if the object is deleted in the foreground: this counts as the client's request, which
// only policies with override can change.
func (f raceFinder) maySkipPolicy(id graph.ID) bool {
	if !slices.Contains(f.survey.Items[id].Meta.Finalizers, graph.Hold) || f.policies == nil {
		return false
	}
	item, governed := f.survey.Items[id], false
	for governing := range f.policies.Policies.Candidates(hostabi.HookPropagate, item.Resource.Version.GroupResource(), item.Meta.Namespace) {
		decided := slices.ContainsFunc(f.decisions[id], func(e record.Entry) bool { return e.Policy == governing.String() })
		if governing.OverrideExplicit && decided {
			return false
		}
		governed = governed || governing.Enforce
	}
	return governed
}

// mark sets the outcome of an object to Unknown if it depends on which of two other objects
// is processed first.
func (f raceFinder) mark(order []graph.ID, objects map[graph.ID]*Object) {
	ways := f.deletionPoliciesOf(order)
	for _, id := range order {
		if _, is := f.deletedWith[id]; is || objects[id].Outcome == Unknown {
			continue
		}
		for _, ref := range f.survey.Items[id].Meta.OwnerReferences {
			owner := graph.IDOf(ref.UID)
			item, there := f.survey.Items[owner]
			if there && ways[owner].both() && !f.hasKeptOwner(id, objects) {
				if reason := f.mayOrphan(owner, item.Meta); reason != "" {
					objects[id].setUnknown("Race", "its owner "+ref.Kind+"/"+ref.Name+" "+reason+", unless one of that owner's own owners is still in foreground deletion when it is deleted")
					break
				}
			}
		}
	}
}

// markTiming sets the outcome of an object to Unknown if it depends on the order of other
// objects whether it is deleted immediately: it may not be deleted in the foreground, or
// its dependents may stop blocking it, since a dependent removes its reference to an owner
// in foreground deletion as long as it has another owner (G-47).
func (f raceFinder) markTiming(order []graph.ID, objects map[graph.ID]*Object) {
	ways := f.deletionPoliciesOf(order)
	hurried := map[graph.ID]bool{}
	for again := true; again; {
		again = false
		for _, id := range order {
			o, refs := objects[id], f.survey.Items[id].Meta.OwnerReferences
			notDeleted := o.Outcome != Waits && o.Outcome != Unknown
			for _, ref := range refs {
				owner, known := objects[graph.IDOf(ref.UID)]
				way := ways[graph.IDOf(ref.UID)]
				if notDeleted || !known || !blocks(ref) || !way.foreground || owner.Outcome == Unknown || owner.Outcome == Stays {
					continue
				}
				if way.requested || len(refs) > 1 || hurried[id] {
					owner.setUnknown("Race", "whether it is deleted before "+o.Kind+"/"+o.Name+" depends on which of their owners is processed first")
					hurried[graph.IDOf(ref.UID)], again = true, true
				}
			}
		}
	}
}

// hasKeptOwner reports whether an object has an owner that is not deleted.
func (f raceFinder) hasKeptOwner(id graph.ID, objects map[graph.ID]*Object) bool {
	return slices.ContainsFunc(f.survey.Items[id].Meta.OwnerReferences, func(ref metav1.OwnerReference) bool {
		owner, there := objects[graph.IDOf(ref.UID)]
		if !there {
			_, there = f.survey.Items[graph.IDOf(ref.UID)]
			return there
		}
		return owner.Outcome == Stays
	})
}

// mayOrphan returns why an object may orphan its dependents unless it is deleted in the
// foreground, or "".
func (f raceFinder) mayOrphan(id graph.ID, o *metav1.PartialObjectMetadata) string {
	switch {
	case hasOrphanFinalizer(o):
		return "orphans it"
	case f.maySkipPolicy(id):
		return "is governed by a policy that decides about it"
	default:
		return ""
	}
}

// hasOrphanFinalizer reports whether an object that is deleted according to its own finalizers orphans
// its dependents.
func hasOrphanFinalizer(o *metav1.PartialObjectMetadata) bool {
	return slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents)
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
