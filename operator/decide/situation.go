package decide

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Situation is what the facts amount to. The zero Situation asks for nothing.
type Situation struct {
	Kind  Kind
	Facts Facts

	// References are the owner references that the situation is about: those
	// to drop, those that could not be read, or those that are all lost.
	References []metav1.OwnerReference
}

// Kind is a kind of situation.
type Kind uint8

const (
	Settled          Kind = iota // nothing to be done
	OwnerUnreadable              // an owner could not be read: keep, and try again
	OwnerNeverFound              // an owner can never be resolved: keep
	LeftByOwner                  // an owner leaves it behind: drop the reference
	PartlyOwned                  // an owner stands, others do not: drop those
	Ownerless                    // no owner is left: a policy is asked
	Held                         // it is being deleted, and a policy is asked what becomes of its dependents
	ReleasesOrphans              // it leaves its dependents behind, and some still name it
	AwaitsDependents             // it waits for blocking dependents
	AwaitsItself                 // it waits for blocking dependents that wait for it
	Unconfirmed                  // nothing is left to wait for, as far as the graph knows
	DoneOrphaning                // and that is confirmed: let it go
	DoneWaiting                  // and that is confirmed: let it go
)

// Classify says what the facts amount to. It is a checklist: the first line
// that fits is the answer.
func Classify(f Facts) Situation {
	for _, check := range []func(Facts) (Situation, bool){
		leftByOwner,
		terminating,
		unowned,
		unreadable,
		neverFound,
		partlyOwned,
	} {
		if s, ok := check(f); ok {
			s.Facts = f
			return s
		}
	}
	return Situation{Kind: Ownerless, Facts: f, References: f.references(Absent, Waiting)}
}

// An owner that orphans has its reference dropped whatever else is true of the
// dependent, terminating or not (G-66).
func leftByOwner(f Facts) (Situation, bool) {
	left := f.references(Orphaning)
	return Situation{Kind: LeftByOwner, References: left}, len(left) != 0
}

// An object that is being deleted is not deleted again; it may only have a
// garbage collection finalizer of its own to be done with (G-42, G-44).
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
		return AwaitsItself
	case f.Blocking != 0:
		return AwaitsDependents
	case !f.Confirmed:
		return Unconfirmed
	default:
		return DoneWaiting
	}
}

func unowned(f Facts) (Situation, bool) {
	return Situation{Kind: Settled}, len(f.Owners) == 0
}

// One owner that can't be read holds every decision about the object (defect
// 3.1). What is not known to be one of the other standings is unread.
func unreadable(f Facts) (Situation, bool) {
	var unread []metav1.OwnerReference
	for _, o := range f.Owners {
		switch o.Standing {
		case Present, Absent, Waiting, Unresolvable:
		default:
			unread = append(unread, o.Reference)
		}
	}
	incomplete := len(f.Owners) != len(f.Object.Owners) || f.Object.Truncated
	return Situation{Kind: OwnerUnreadable, References: unread}, len(unread) != 0 || incomplete
}

func neverFound(f Facts) (Situation, bool) {
	lost := f.references(Unresolvable)
	return Situation{Kind: OwnerNeverFound, References: lost}, len(lost) != 0
}

// With one owner standing the object stays; references to those that do not
// are dropped, which also unblocks the ones that wait (G-47, G-62).
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

func (f Facts) references(standings ...Standing) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, o := range f.Owners {
		for _, s := range standings {
			if o.Standing == s {
				refs = append(refs, o.Reference)
			}
		}
	}
	return refs
}
