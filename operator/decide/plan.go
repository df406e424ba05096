package decide

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
)

// Action is one write to the API server. The set is closed.
type Action interface{ action() }

// Delete deletes the object, provided that it is still as it was judged: UID
// and resourceVersion are preconditions.
type Delete struct {
	Object             graph.Object
	Propagation        metav1.DeletionPropagation
	GracePeriodSeconds *int64 // nil: the object's own
}

// Propagate deletes an object once more that is being deleted already, which
// changes nothing but what becomes of its dependents. UID and
// resourceVersion are preconditions.
type Propagate struct {
	Object      graph.Object
	Propagation metav1.DeletionPropagation
}

// DropReferences takes owner references off the object, these and no others.
type DropReferences struct {
	Object     graph.Object
	References []metav1.OwnerReference

	// Leave says that the owners take leave of the object. That holds however
	// the object has changed; otherwise it has to be as it was judged.
	Leave bool
}

// RemoveFinalizer takes a finalizer off an object, whose other finalizers stay
// as they are then.
type RemoveFinalizer struct {
	Object    graph.Object
	Finalizer string

	// Regardless takes a hold off whatever has changed since it was judged.
	Regardless bool
}

// AddFinalizer puts a finalizer onto an object, provided that it is still as it
// was judged.
type AddFinalizer struct {
	Object    graph.Object
	Finalizer string
}

// Unblock lets an object no longer block the deletion of one of its owners,
// provided that it is still as it was judged.
type Unblock struct {
	Object graph.Object
	Owner  graph.ID
}

// Remember writes a memo onto the object, provided that it is still as it was
// judged.
type Remember struct {
	Object graph.Object
	Memo   memo.Memo
}

// Forget takes the memo off the object, provided that it is still as it was judged.
type Forget struct{ Object graph.Object }

func (Delete) action()          {}
func (Propagate) action()       {}
func (DropReferences) action()  {}
func (RemoveFinalizer) action() {}
func (AddFinalizer) action()    {}
func (Unblock) action()         {}
func (Remember) action()        {}
func (Forget) action()          {}

// Target returns the object that an action writes to; false for none.
func Target(action Action) (graph.Object, bool) {
	switch a := action.(type) {
	case Delete:
		return a.Object, true
	case Propagate:
		return a.Object, true
	case DropReferences:
		return a.Object, true
	case RemoveFinalizer:
		return a.Object, true
	case AddFinalizer:
		return a.Object, true
	case Unblock:
		return a.Object, true
	case Remember:
		return a.Object, true
	case Forget:
		return a.Object, true
	default:
		return graph.Object{}, false
	}
}

// Plan is what is to be done about one object now. The zero Plan does nothing.
type Plan struct {
	Reason Reason
	Action Action // nil: nothing is written

	Confirm bool // have the object's dependents confirmed, then look again
	Retry   bool // look again, later each time: nothing that is watched will say when

	// After is when to look again, exactly; 0: not because of the time.
	After time.Duration

	// Misplaced are the references whose owner was seen in another namespace,
	// of which the object's owner is told (G-33).
	Misplaced []Owner
}

// Reason is why a plan is as it is, in the form of a condition's reason.
type Reason string

// The reasons of plans.
const (
	NothingToDo           Reason = ""
	OwnersUnreadable      Reason = "OwnerUnreadable"       // an owner could not be read, and so the object stays
	OwnersUnresolvable    Reason = "OwnerUnresolvable"     // an owner is of a type that there is not, and so the object stays
	TooManyOwners         Reason = "TooManyOwners"         // it has more owners than are read at once, and so it stays for now
	OwnerOrphans          Reason = "OwnerOrphans"          // an owner is being deleted, and takes leave of its dependents
	OwnerRemains          Reason = "OwnerRemains"          // an owner is there, and references to those that are not are dropped
	OwnersAbsent          Reason = "OwnersAbsent"          // all owners are gone
	OwnersWaiting         Reason = "OwnersWaiting"         // the owners that are left are being deleted in the foreground, and wait for it
	KeptByPolicy          Reason = "KeptByPolicy"          // a policy keeps an object that lost its owners
	WaitsByPolicy         Reason = "WaitsByPolicy"         // a policy wants to be asked again later
	DelayedByPolicy       Reason = "DelayedByPolicy"       // a policy deletes it after a while without owners
	PolicyAtFault         Reason = "PolicyAtFault"         // a policy did not answer as it must, and holds the object for that
	PolicyLimited         Reason = "PolicyLimited"         // a policy has the state of objects written more often than it may, and so it waits
	MemoObsolete          Reason = "MemoObsolete"          // what was remembered of it is of no use any more
	PropagationDecided    Reason = "PropagationDecided"    // a policy has decided what becomes of the dependents of an object that is deleted
	HoldReleased          Reason = "HoldReleased"          // its dependents are seen to, and the hold is taken off
	HoldWanted            Reason = "HoldWanted"            // a policy governs it, and has to be asked when it is deleted
	HoldObsolete          Reason = "HoldObsolete"          // it has a hold, and no policy governs it any more
	ExceptedByPolicy      Reason = "ExceptedByPolicy"      // a policy decided otherwise about a dependent of this kind than about its owner's others
	PolicySilent          Reason = "PolicySilent"          // there is no decision that makes sense, and so it stays
	DependentsRemain      Reason = "DependentsRemain"      // it waits for dependents that are still there
	DependentsUnreadable  Reason = "DependentsUnreadable"  // it waits, since not all kinds of its dependents could be listed
	DependentsUnconfirmed Reason = "DependentsUnconfirmed" // it waits for a last look at its dependents
	DependentsReleased    Reason = "DependentsReleased"    // its dependents do not name it any more, and it may go
	DependentsGone        Reason = "DependentsGone"        // its dependents are gone, and it may go
	OwnershipCycle        Reason = "OwnershipCycle"        // objects that are being deleted own each other in a circle, which is broken here
	LeftToCollector       Reason = "LeftToCollector"       // the other collector, beside which we work, is about to do what is right
	RefusedForNow         Reason = "RefusedForNow"         // the other collector wants to delete it, and whether it may is not known yet
)

// Judgement is what the policies had to say about an object without owners. The
// zero Judgement keeps it.
type Judgement struct {
	Verdict hostabi.Verdict // with the propagation, if it is to delete

	// Fault says that a policy is at fault which holds the object for that.
	Fault bool

	// Memo is what is to be remembered of the object while it waits, and
	// Remembered what is on it now; the zero Memo if nothing is that counts.
	Memo, Remembered memo.Memo

	Now time.Time

	// What follows counts only for Beside.

	Decided   bool // the verdict is a policy's, and not what happens without any
	Contested bool // a policy was asked that enforces what it says
	Watched   bool // a policy was asked that does not
	Usual     bool // the verdict is what the other collector does by itself
	Kept      bool // a policy has kept the object from the other collector before
	Refusable bool // the other collector may have been refused, if only since the webhook was away
	Attempt   int  // how often it was asked after a wait, from 1
}

// Choose makes the plan for a situation. The judgement counts only where the
// object is Ownerless; anything but a complete verdict to delete keeps it.
func Choose(s Situation, j Judgement) Plan {
	plan := choose(s, j)
	if !s.Facts.Object.Terminating {
		for _, o := range s.Facts.Owners {
			if o.Elsewhere != "" {
				plan.Misplaced = append(plan.Misplaced, o)
			}
		}
	}
	return plan
}

func choose(s Situation, j Judgement) Plan {
	o := s.Facts.Object
	drop := DropReferences{Object: o, References: s.References}
	switch s.Kind {
	case Settled:
		return settled(s)
	case OwnerUnreadable:
		return unread(s.Facts)
	case OwnerNeverFound:
		return Plan{Reason: OwnersUnresolvable}
	case LeftByOwner:
		drop.Leave = true
		return Plan{Reason: OwnerOrphans, Action: drop}
	case PartlyOwned:
		return Plan{Reason: OwnerRemains, Action: drop, Retry: s.Facts.polled()}
	case Ownerless:
		return collect(s, j)
	case Held:
		return propagate(s, j)
	case ReleasesOrphans, AwaitsDependents:
		return Plan{Reason: DependentsRemain}
	case AwaitsItself:
		edge := s.Facts.Cycle
		return Plan{Reason: OwnershipCycle, Action: Unblock{Object: edge.Dependent.Object, Owner: edge.Owner}}
	case Unconfirmed:
		if s.Facts.Unconfirmed != "" {
			return Plan{Reason: DependentsUnreadable, Retry: true}
		}
		return Plan{Reason: DependentsUnconfirmed, Confirm: true}
	case DoneOrphaning:
		return Plan{Reason: DependentsReleased, Action: RemoveFinalizer{Object: o, Finalizer: metav1.FinalizerOrphanDependents}}
	case DoneWaiting:
		return Plan{Reason: DependentsGone, Action: RemoveFinalizer{Object: o, Finalizer: metav1.FinalizerDeleteDependents}}
	default:
		return Plan{}
	}
}

// unread keeps an object, and has it looked at again.
func unread(f Facts) Plan {
	if f.Unread != 0 || f.Object.Truncated {
		return Plan{Reason: TooManyOwners, Retry: true}
	}
	return Plan{Reason: OwnersUnreadable, Retry: true}
}

// settled leaves an object alone, but for a memo of having been without owners.
func settled(s Situation) Plan {
	o := s.Facts.Object
	if o.Memo && !o.Terminating {
		return Plan{Reason: MemoObsolete, Action: Forget{o}, Retry: s.Facts.polled()}
	}
	return Plan{Retry: s.Facts.polled()}
}

func collect(s Situation, j Judgement) Plan {
	o, v := s.Facts.Object, j.Verdict
	propagation, known := propagations[v.Propagation]
	switch {
	case j.Fault:
		return Plan{Reason: PolicyAtFault, Retry: true}
	case v.Decision == hostabi.DecisionDelete && known:
		if left := j.left(v.Delay); left > 0 {
			return j.wait(DelayedByPolicy, o, left)
		}
		return Plan{Reason: s.lost(), Action: Delete{
			Object: o, Propagation: propagation, GracePeriodSeconds: v.GracePeriodSeconds,
		}}
	case v.Decision == hostabi.DecisionOrphan:
		return Plan{Reason: KeptByPolicy, Action: DropReferences{Object: o, References: s.References}}
	case v.Decision == hostabi.DecisionWait:
		return j.wait(WaitsByPolicy, o, v.WaitFor())
	default:
		return Plan{Reason: PolicySilent, Retry: true}
	}
}

// unwritten reports whether there is something to be written onto the object.
func (j Judgement) unwritten(o graph.Object) bool {
	return memo.Fits(o.Kind.Group) && !j.Memo.Equal(j.Remembered)
}

// left is how much of a delay is left. While nobody knows since when the object
// has had no owner, all of it is.
func (j Judgement) left(delay hostabi.Duration) time.Duration {
	since := j.Memo.OwnerlessSince
	if since.IsZero() {
		return time.Duration(delay)
	}
	return min(time.Duration(delay), since.Add(time.Duration(delay)).Sub(j.Now))
}

// wait has the object looked at again after a time, and remembers what is to be
// known then.
func (j Judgement) wait(why Reason, o graph.Object, after time.Duration) Plan {
	plan := Plan{Reason: why, After: max(after, time.Duration(hostabi.MinWait))}
	if j.unwritten(o) {
		plan.Action = Remember{Object: o, Memo: j.Memo}
	}
	return plan
}

// Keep makes the plan for the hold of an object that is not being deleted.
func Keep(o graph.Object, wanted bool) Plan {
	switch {
	case o.Terminating || o.Held == wanted:
		return Plan{}
	case wanted:
		return Plan{Reason: HoldWanted, Action: AddFinalizer{o, graph.Hold}}
	default:
		return Plan{Reason: HoldObsolete, Action: RemoveFinalizer{Object: o, Finalizer: graph.Hold}}
	}
}

// propagate carries out what was decided of a held object's dependents, one write
// at a time: remember it, have the API server change its finalizers, let it go.
// Each step is told from the object as it is, so that it can be taken up again
// wherever it was broken off.
func propagate(s Situation, j Judgement) Plan {
	o, v := s.Facts.Object, j.Verdict
	propagation, known := propagations[propagationOf(j)]
	switch {
	case j.Fault:
		return Plan{Reason: PolicyAtFault, Retry: true}
	case v.Decision == hostabi.DecisionWait:
		return j.wait(WaitsByPolicy, o, v.WaitFor())
	case !known:
		return Plan{Reason: PolicySilent, Retry: true}
	case propagation == requested(o):
		return Plan{Reason: HoldReleased, Action: RemoveFinalizer{Object: o, Finalizer: graph.Hold}}
	case j.unwritten(o):
		return Plan{Reason: PropagationDecided, Action: Remember{Object: o, Memo: j.Memo}}
	default:
		return Plan{Reason: PropagationDecided, Action: Propagate{o, propagation}}
	}
}

// propagationOf is what a verdict on dependents says is to become of them.
func propagationOf(j Judgement) hostabi.Propagation { return hostabi.Propagation(j.Verdict.Decision) }

// requested is what the object's finalizers now say is to become of its
// dependents. The orphan finalizer is looked at first (G-23).
func requested(o graph.Object) metav1.DeletionPropagation {
	switch {
	case o.Orphan:
		return metav1.DeletePropagationOrphan
	case o.Foreground:
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}

var propagations = map[hostabi.Propagation]metav1.DeletionPropagation{
	hostabi.PropagationBackground: metav1.DeletePropagationBackground,
	hostabi.PropagationForeground: metav1.DeletePropagationForeground,
	hostabi.PropagationOrphan:     metav1.DeletePropagationOrphan,
}

// lost says how the object's owners were lost.
func (s Situation) lost() Reason {
	if len(s.Facts.references(Waiting)) != 0 {
		return OwnersWaiting
	}
	return OwnersAbsent
}

func (f Facts) polled() bool {
	for _, o := range f.Owners {
		if o.Polled && o.Standing == Present {
			return true
		}
	}
	return false
}
