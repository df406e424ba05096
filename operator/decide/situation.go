package decide

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Situation is the classification of facts. The zero Situation needs no action.
type Situation struct {
	Kind  Kind
	Facts Facts

	// References are the owner references that the situation is about: those to
	// remove, those that could not be read, or those of lost owners.
	References []metav1.OwnerReference
}

// Kind is a kind of situation.
type Kind uint8

const (
	Settled              Kind = iota // nothing to do
	HasUnreadableOwner               // an owner could not be read: keep and retry
	HasUnresolvableOwner             // an owner can never be resolved: keep
	HasOrphaningOwner                // an owner orphans it: remove the reference
	PartlyOwned                      // an owner is present, others are not: remove the references to those
	Ownerless                        // no owner is left: evaluate policies
	Held                             // it is being deleted, and policies decide about its dependents
	ReleasesOrphans                  // it orphans its dependents, and some still reference it
	WaitsForDependents               // it waits for blocking dependents
	WaitsForItself                   // it waits for blocking dependents that wait for it
	Unconfirmed                      // according to the graph, it has nothing to wait for
	DoneOrphaning                    // orphaning is complete and confirmed: remove the finalizer
	DoneWaiting                      // foreground deletion is complete and confirmed: remove the finalizer
)

// Classify returns the situation for the facts. The first check that applies decides.
func Classify(f Facts) Situation {
	for _, check := range []func(Facts) (Situation, bool){
		orphanedByOwner,
		terminating,
		withoutReferences,
		unreadable,
		unresolvable,
		partlyOwned,
	} {
		if s, ok := check(f); ok {
			s.Facts = f
			return s
		}
	}
	return Situation{Kind: Ownerless, Facts: f, References: f.references(Absent, Waiting)}
}

// The reference to an owner that orphans is removed in any case, even from a dependent
// that is terminating (G-66). References to owners that were deleted before are removed with it: if they were left, the
// dependent would be deleted although its last owner keeps it.
func orphanedByOwner(f Facts) (Situation, bool) {
	left := f.references(Orphaning)
	if len(left) != 0 && !f.Object.Terminating {
		left = append(left, f.deletedBeforeOrphaning()...)
	}
	return Situation{Kind: HasOrphaningOwner, References: left}, len(left) != 0
}

// deletedBeforeOrphaning returns the references to absent owners, except for those that are known to be deleted after
// the deletion of all owners that orphan the object began.
func (f Facts) deletedBeforeOrphaning() (refs []metav1.OwnerReference) {
	var last uint64
	for _, o := range f.Owners {
		switch {
		case o.Status != Orphaning:
		case o.DeletionVersion == 0:
			return f.references(Absent)
		default:
			last = max(last, o.DeletionVersion)
		}
	}
	for _, o := range f.Owners {
		if o.Status == Absent && o.DeletionVersion <= last {
			refs = append(refs, o.Reference)
		}
	}
	return refs
}

// An object that is being deleted is not deleted again. It may only need its garbage
// collection finalizer removed (G-42, G-44).
func terminating(f Facts) (Situation, bool) {
	switch {
	case !f.Object.Terminating:
		return Situation{}, false
	case f.Object.Held:
		return Situation{Kind: Held}, true
	case f.Object.Orphan:
		return Situation{Kind: orphaning(f)}, true
	case f.Object.Foreground:
		return Situation{Kind: waiting(f)}, true
	default:
		return Situation{Kind: Settled}, true
	}
}

func orphaning(f Facts) Kind {
	switch {
	case f.Dependents != 0:
		return ReleasesOrphans
	case !f.Confirmed:
		return Unconfirmed
	default:
		return DoneOrphaning
	}
}

func waiting(f Facts) Kind {
	switch {
	case f.Blocking != 0 && f.Cycle != nil:
		return WaitsForItself
	case f.Blocking != 0:
		return WaitsForDependents
	case !f.Confirmed:
		return Unconfirmed
	default:
		return DoneWaiting
	}
}

func withoutReferences(f Facts) (Situation, bool) {
	return Situation{Kind: Settled}, len(f.Owners) == 0
}

// One owner that cannot be read blocks every decision about the object (defect 3.1).
// Any status that is not listed counts as unread.
func unreadable(f Facts) (Situation, bool) {
	var unread []metav1.OwnerReference
	for _, o := range f.Owners {
		switch o.Status {
		case Present, Absent, Waiting, Unresolvable:
		default:
			unread = append(unread, o.Reference)
		}
	}
	incomplete := len(f.Owners) != len(f.Object.Owners) || f.Object.Truncated
	return Situation{Kind: HasUnreadableOwner, References: unread}, len(unread) != 0 || incomplete
}

func unresolvable(f Facts) (Situation, bool) {
	lost := f.references(Unresolvable)
	return Situation{Kind: HasUnresolvableOwner, References: lost}, len(lost) != 0
}

// With one owner present the object is kept. References to the others are removed,
// which also unblocks those that wait (G-47, G-62).
func partlyOwned(f Facts) (Situation, bool) {
	if len(f.references(Present)) == 0 {
		return Situation{}, false
	}
	lost := f.references(Absent, Waiting)
	if len(lost) == 0 {
		return Situation{Kind: Settled}, true
	}
	return Situation{Kind: PartlyOwned, References: lost}, true
}

func (f Facts) references(statuses ...OwnerStatus) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, o := range f.Owners {
		for _, s := range statuses {
			if o.Status == s {
				refs = append(refs, o.Reference)
			}
		}
	}
	return refs
}
