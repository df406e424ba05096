package preview

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// ways are the ways in which an object may be deleted. What becomes of its dependents
// can depend on which it is, and that on which of two others is first: in a cluster
// either may be. The copy of it goes one of these ways only.
type ways struct {
	foreground bool // while an owner waits
	otherwise  bool // once that owner is gone: as its own finalizers say
}

func (w ways) either() bool { return w.foreground && w.otherwise }

// waysOf finds out in what ways each of the objects may be deleted. An object that has
// dependents goes in the foreground if its owner is found waiting for a foreground
// deletion, and as its own finalizers say if its owner is found gone (G-48, G-49). An
// owner only waits for those that block it: it may be gone before the others are
// looked at.
func (p *preview) waysOf(order []graph.ID) map[graph.ID]ways {
	found := map[graph.ID]ways{}
	for _, id := range order {
		if _, is := p.waited[id]; is {
			found[id] = ways{foreground: true}
		}
	}
	for again := true; again; {
		again = false
		for _, id := range order {
			if w := p.mayGo(id, found); w != found[id] {
				found[id], again = w, true
			}
		}
	}
	return found
}

// mayGo adds to the ways in which an object goes those that it may go by its owners.
func (p *preview) mayGo(id graph.ID, found map[graph.ID]ways) ways {
	w := found[id]
	from := p.options.Survey.Items[id].Meta
	if !p.collectedByDefault(id) || slices.Contains(from.Finalizers, metav1.FinalizerDeleteDependents) && !leaves(from) {
		return w
	}
	waits, sure := false, true
	for _, ref := range from.OwnerReferences {
		owner := found[graph.IDOf(ref.UID)]
		waits = waits || owner.foreground
		sure = sure && owner.foreground && !owner.otherwise && blocks(ref)
	}
	if p.propagationDecided(id) && (!waits || sure || !p.mayBeUnasked(id)) {
		return w
	}
	return ways{foreground: w.foreground || waits, otherwise: w.otherwise || !w.foreground || !sure}
}

// collectedByDefault reports whether an object is deleted for its owners, and no policy
// has said how.
func (p *preview) collectedByDefault(id graph.ID) bool {
	return slices.ContainsFunc(p.decisions[id], func(e record.Entry) bool {
		return e.Action == record.Delete && (e.Policy == "" || e.Policy == builtin.Policy{}.Name())
	})
}

// propagationDecided reports whether a policy has said what becomes of an object's
// dependents.
func (p *preview) propagationDecided(id graph.ID) bool {
	return slices.ContainsFunc(p.decisions[id], func(e record.Entry) bool { return e.Reason == decide.PropagationDecided })
}

// mayBeUnasked reports whether the policy on the dependents of an object has no say if
// the object is deleted in the foreground: that is as if somebody had asked for it,
// which only some policies override.
func (p *preview) mayBeUnasked(id graph.ID) bool {
	if !slices.Contains(p.options.Survey.Items[id].Meta.Finalizers, graph.Hold) || p.options.Reading == nil {
		return false
	}
	item, governed := p.options.Survey.Items[id], false
	for governing := range p.options.Reading.Policies.For(hostabi.HookPropagate, item.Resource.Version.GroupResource(), item.Meta.Namespace) {
		decided := slices.ContainsFunc(p.decisions[id], func(e record.Entry) bool { return e.Policy == governing.String() })
		if governing.Override && decided {
			return false
		}
		governed = governed || governing.Enforce
	}
	return governed
}

// race has it not be known what becomes of an object if that depends on which of two
// others is first.
func (p *preview) race(order []graph.ID, objects map[graph.ID]*Object) {
	ways := p.waysOf(order)
	for _, id := range order {
		if _, is := p.swept[id]; is || objects[id].Outcome == Unknown {
			continue
		}
		for _, ref := range p.options.Survey.Items[id].Meta.OwnerReferences {
			owner := graph.IDOf(ref.UID)
			item, there := p.options.Survey.Items[owner]
			if there && ways[owner].either() && !p.stands(id, objects) {
				if why := p.mayLeave(owner, item.Meta); why != "" {
					objects[id].unknown("Race", "its owner "+ref.Kind+"/"+ref.Name+" "+why+", unless one of that owner's own owners still waits for a foreground deletion when it is deleted")
					break
				}
			}
		}
	}
}

// hurry has it not be known of an object whether it goes at once, if that depends on
// which of others is first: it may not be deleted in the foreground, or be so and lose
// what blocks it, since a dependent drops an owner that waits as long as it has
// another one (G-47).
func (p *preview) hurry(order []graph.ID, objects map[graph.ID]*Object) {
	ways := p.waysOf(order)
	hurried := map[graph.ID]bool{}
	for again := true; again; {
		again = false
		for _, id := range order {
			o, refs := objects[id], p.options.Survey.Items[id].Meta.OwnerReferences
			stands := o.Outcome != Waits && o.Outcome != Unknown
			for _, ref := range refs {
				owner, known := objects[graph.IDOf(ref.UID)]
				way := ways[graph.IDOf(ref.UID)]
				if stands || !known || !blocks(ref) || !way.foreground || owner.Outcome == Unknown || owner.Outcome == Stays {
					continue
				}
				if way.otherwise || len(refs) > 1 || hurried[id] {
					owner.unknown("Race", "whether it goes before "+o.Kind+"/"+o.Name+" depends on which of their owners is first")
					hurried[graph.IDOf(ref.UID)], again = true, true
				}
			}
		}
	}
}

// stands reports whether an object has an owner that stays.
func (p *preview) stands(id graph.ID, objects map[graph.ID]*Object) bool {
	return slices.ContainsFunc(p.options.Survey.Items[id].Meta.OwnerReferences, func(ref metav1.OwnerReference) bool {
		owner, there := objects[graph.IDOf(ref.UID)]
		if !there {
			_, there = p.options.Survey.Items[graph.IDOf(ref.UID)]
			return there
		}
		return owner.Outcome == Stays
	})
}

// races reports whether an object has owners that go without it, and others that take
// it along. In a cluster any of them may be first.
func (p *preview) races(id graph.ID) bool {
	leaves, takes := false, false
	for _, ref := range p.options.Survey.Items[id].Meta.OwnerReferences {
		owner := graph.IDOf(ref.UID)
		_, orphans := p.orphans[owner]
		_, goes := p.endings[owner]
		leaves, takes = leaves || orphans, takes || goes && !orphans
	}
	return leaves && takes
}

// mayLeave says why an object may leave its dependents behind unless it is deleted in the
// foreground.
func (p *preview) mayLeave(id graph.ID, o *metav1.PartialObjectMetadata) string {
	switch {
	case leaves(o):
		return "leaves it behind"
	case p.mayBeUnasked(id):
		return "has a policy asked about it"
	default:
		return ""
	}
}

// leaves reports whether an object that is deleted as its own finalizers say leaves its
// dependents behind.
func leaves(o *metav1.PartialObjectMetadata) bool {
	return slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents)
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}
