package decide

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
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
}

// Unblock lets an object no longer block the deletion of one of its owners,
// provided that it is still as it was judged.
type Unblock struct {
	Object graph.Object
	Owner  graph.ID
}

func (Delete) action()          {}
func (DropReferences) action()  {}
func (RemoveFinalizer) action() {}
func (Unblock) action()         {}

// Target returns the object that an action writes to; false for none.
func Target(action Action) (graph.Object, bool) {
	switch a := action.(type) {
	case Delete:
		return a.Object, true
	case DropReferences:
		return a.Object, true
	case RemoveFinalizer:
		return a.Object, true
	case Unblock:
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

	// Misplaced are the references whose owner was seen in another namespace,
	// of which the object's owner is told (G-33).
	Misplaced []Owner
}

// Reason is why a plan is as it is, in the form of a condition's reason.
type Reason string

// The reasons of plans.
const (
	NothingToDo           Reason = ""
	OwnersUnreadable      Reason = "OwnerUnreadable"
	OwnersUnresolvable    Reason = "OwnerUnresolvable"
	OwnerOrphans          Reason = "OwnerOrphans"
	OwnerRemains          Reason = "OwnerRemains"
	OwnersAbsent          Reason = "OwnersAbsent"
	OwnersWaiting         Reason = "OwnersWaiting"
	KeptByPolicy          Reason = "KeptByPolicy"
	WaitsByPolicy         Reason = "WaitsByPolicy"
	PolicySilent          Reason = "PolicySilent"
	DependentsRemain      Reason = "DependentsRemain"
	DependentsUnreadable  Reason = "DependentsUnreadable"
	DependentsUnconfirmed Reason = "DependentsUnconfirmed"
	DependentsReleased    Reason = "DependentsReleased"
	DependentsGone        Reason = "DependentsGone"
	OwnershipCycle        Reason = "OwnershipCycle"
)

// Choose makes the plan for a situation. The verdict counts only where the
// object is Ownerless; anything but a complete verdict to delete keeps it.
func Choose(s Situation, v hostabi.Verdict) Plan {
	plan := choose(s, v)
	if !s.Facts.Object.Terminating {
		for _, o := range s.Facts.Owners {
			if o.Elsewhere != "" {
				plan.Misplaced = append(plan.Misplaced, o)
			}
		}
	}
	return plan
}

func choose(s Situation, v hostabi.Verdict) Plan {
	o := s.Facts.Object
	drop := DropReferences{Object: o, References: s.References}
	switch s.Kind {
	case Settled:
		return Plan{Retry: s.Facts.polled()}
	case OwnerUnreadable:
		return Plan{Reason: OwnersUnreadable, Retry: true}
	case OwnerNeverFound:
		return Plan{Reason: OwnersUnresolvable}
	case LeftByOwner:
		drop.Leave = true
		return Plan{Reason: OwnerOrphans, Action: drop}
	case PartlyOwned:
		return Plan{Reason: OwnerRemains, Action: drop, Retry: s.Facts.polled()}
	case Ownerless:
		return collect(s, v)
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
		return Plan{Reason: DependentsReleased, Action: RemoveFinalizer{o, metav1.FinalizerOrphanDependents}}
	case DoneWaiting:
		return Plan{Reason: DependentsGone, Action: RemoveFinalizer{o, metav1.FinalizerDeleteDependents}}
	default:
		return Plan{}
	}
}

func collect(s Situation, v hostabi.Verdict) Plan {
	propagation, known := propagations[v.Propagation]
	switch {
	case v.Decision == hostabi.DecisionDelete && known:
		return Plan{Reason: s.lost(), Action: Delete{
			Object: s.Facts.Object, Propagation: propagation, GracePeriodSeconds: v.GracePeriodSeconds,
		}}
	case v.Decision == hostabi.DecisionOrphan:
		return Plan{Reason: KeptByPolicy, Action: DropReferences{Object: s.Facts.Object, References: s.References}}
	case v.Decision == hostabi.DecisionWait:
		return Plan{Reason: WaitsByPolicy, Retry: true}
	default:
		return Plan{Reason: PolicySilent, Retry: true}
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
