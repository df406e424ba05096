package decide

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// Action is one write to the API server. The set is closed.
type Action interface{ action() }

// Delete deletes the object. UID and resourceVersion are preconditions, so it has no
// effect on an object that has changed since the decision.
type Delete struct {
	Object             graph.Object
	Propagation        metav1.DeletionPropagation
	GracePeriodSeconds *int64 // nil: the object's own
}

// Propagate deletes an object that is already being deleted again, which only changes
// the propagation policy. UID and resourceVersion are preconditions.
type Propagate struct {
	Object      graph.Object
	Propagation metav1.DeletionPropagation
}

// DropReferences removes the given owner references from the object.
type DropReferences struct {
	Object     graph.Object
	References []metav1.OwnerReference

	// Orphan is set if the owners orphan the object. Then the references are removed
	// even if the object has changed; otherwise resourceVersion is a precondition.
	Orphan bool
}

// RemoveFinalizer removes one finalizer from an object. Its other finalizers stay.
type RemoveFinalizer struct {
	Object    graph.Object
	Finalizer string

	// IgnoreChanges removes a hold even if the object has changed since the decision.
	IgnoreChanges bool
}

// AddFinalizer adds a finalizer to an object that has not changed since the decision.
type AddFinalizer struct {
	Object    graph.Object
	Finalizer string
}

// Unblock sets blockOwnerDeletion to false in an object's reference to one of its
// owners, if the object has not changed since the decision.
type Unblock struct {
	Object graph.Object
	Owner  graph.ID
}

// SaveState writes the state annotation of an object that has not changed since the
// decision.
type SaveState struct {
	Object graph.Object
	State  objectstate.State
}

// RemoveState removes the state annotation of an object that has not changed since the
// decision.
type RemoveState struct{ Object graph.Object }

func (Delete) action()          {}
func (Propagate) action()       {}
func (DropReferences) action()  {}
func (RemoveFinalizer) action() {}
func (AddFinalizer) action()    {}
func (Unblock) action()         {}
func (SaveState) action()       {}
func (RemoveState) action()     {}

// Target returns the object that an action writes to. It returns false if there is none.
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
	case SaveState:
		return a.Object, true
	case RemoveState:
		return a.Object, true
	default:
		return graph.Object{}, false
	}
}

// Plan is the decision about one object. The zero Plan does nothing.
type Plan struct {
	Reason  Reason
	Message string // what the reason leaves out; "" if it says everything
	Action  Action // nil: nothing is written

	ConfirmDependents bool // have the object's dependents listed, then decide again
	Retry             bool // decide again with backoff: no watch event will trigger it

	// RequeueAfter is the time until the next decision; 0 means none is scheduled.
	RequeueAfter time.Duration

	// WrongNamespaceOwners are the references whose owner exists in another namespace. An event
	// on the object reports them (G-33).
	WrongNamespaceOwners []Owner
}

// Reason is the reason of a plan in CamelCase, like the reason of a condition.
type Reason string

// The reasons of plans.
const (
	NothingToDo           Reason = ""
	OwnersUnreadable      Reason = "OwnerUnreadable"       // an owner could not be read, so the object is kept
	OwnersUnresolvable    Reason = "OwnerUnresolvable"     // an owner of a cluster-scoped object is namespaced, so the object is kept
	TooManyOwners         Reason = "TooManyOwners"         // the object has more owners than are read per pass, so it is kept for now
	OrphanedByOwner       Reason = "OrphanedByOwner"       // an owner is being deleted with propagation policy Orphan
	OwnerRemains          Reason = "OwnerRemains"          // an owner exists, and references to absent owners are removed
	OwnersAbsent          Reason = "OwnersAbsent"          // all owners are absent
	OwnersWaiting         Reason = "OwnersWaiting"         // the remaining owners are being deleted in the foreground, and wait for the object
	KeptByPolicy          Reason = "KeptByPolicy"          // a policy keeps the object after its owners are gone
	PolicyWaiting         Reason = "PolicyWaiting"         // a policy returned Wait and is evaluated again later
	DelayedByPolicy       Reason = "DelayedByPolicy"       // a policy deletes the object after a delay
	PolicyFault           Reason = "PolicyFault"           // a policy failed, and its onFault keeps the object
	PolicyRateLimited     Reason = "PolicyRateLimited"     // a policy exceeds its rate limit for writing state, so the object waits
	StateObsolete         Reason = "StateObsolete"         // the state annotation is not needed any more
	PropagationDecided    Reason = "PropagationDecided"    // a policy has decided the propagation policy of a deleted object
	HoldReleased          Reason = "HoldReleased"          // the propagation is carried out, and the hold is removed
	HoldRequired          Reason = "HoldRequired"          // a policy governs the object and must be evaluated when it is deleted
	HoldObsolete          Reason = "HoldObsolete"          // the object has a hold, and no policy governs it any more
	OverriddenByPolicy    Reason = "OverriddenByPolicy"    // a policy of the owner decided separately about dependents of this kind
	NoDecision            Reason = "NoDecision"            // there is no valid verdict, so the object is kept
	DependentsRemain      Reason = "DependentsRemain"      // the object waits for dependents that still exist
	DependentsInOrder     Reason = "DependentsInOrder"     // the object waits for dependents that are deleted in order
	DependentsUnreadable  Reason = "DependentsUnreadable"  // the object waits because not all kinds of dependents could be listed
	DependentsUnconfirmed Reason = "DependentsUnconfirmed" // the object waits until its dependents have been listed
	DependentsOrphaned    Reason = "DependentsOrphaned"    // no dependent references the object any more, so it is deleted
	DeletionNotObserved   Reason = "DeletionNotObserved"   // dependents are orphaned when the controller of the object has observed the deletion
	ObserveTimedOut       Reason = "ObserveTimedOut"       // the controller of the object has not observed the deletion in time, and dependents are orphaned anyway
	DependentsGone        Reason = "DependentsGone"        // all blocking dependents are gone, so the object is deleted
	OwnershipCycle        Reason = "OwnershipCycle"        // objects that are being deleted own each other, and this reference is unblocked
	LeftToCollector       Reason = "LeftToCollector"       // the built-in garbage collector is about to do the same
	DeletedByCollector    Reason = "DeletedByCollector"    // the built-in garbage collector was allowed to delete the object
	DeletionDenied        Reason = "DeletionDenied"        // a policy protects it, and denied a user's request to delete it
	RemovedByRetention    Reason = "RemovedByRetention"    // a retention policy removes it: by age, number or disuse
	CascadeCompleted      Reason = "CascadeCompleted"      // nothing is left of the cascade that the object's deletion has begun
	CascadeStalled        Reason = "CascadeStalled"        // for five minutes, nothing of the object's cascade was deleted or released
	DeletionDeferred      Reason = "DeletionDeferred"      // the built-in garbage collector requested a deletion before the decision was known
)

// PolicyResult is the result of evaluating the policies that govern an object. The
// zero PolicyResult keeps it.
type PolicyResult struct {
	Verdict hostabi.Verdict // with the propagation, if it is to delete

	// Fault is set if a policy failed and its onFault keeps the object.
	Fault bool

	// State is the state to be stored while the object waits, and Remembered the
	// valid state that is on the object now; zero if there is none.
	State, StoredState objectstate.State

	Now time.Time

	// Fields below are for companion mode only.

	ByPolicy       bool // the verdict is that of a policy, not the default
	Enforced       bool // a policy in Enforce mode was evaluated
	Monitored      bool // a policy in Monitor mode was evaluated
	MatchesDefault bool // the verdict equals the default, which the built-in garbage collector carries out
	KeptBefore     bool // a policy has kept the object from the built-in garbage collector before
	MaybeDenied    bool // the webhook may have denied the built-in garbage collector's request, or was unavailable
	Attempt        int  // evaluations after a wait, from 1
}

// Choose returns the plan for a situation. The result of policies matters only if the
// object is Ownerless or Held; anything but a complete verdict to delete keeps it.
func Choose(s Situation, j PolicyResult) Plan {
	plan := choose(s, j)
	if !s.Facts.Object.Terminating {
		for _, o := range s.Facts.Owners {
			if o.ActualNamespace != "" {
				plan.WrongNamespaceOwners = append(plan.WrongNamespaceOwners, o)
			}
		}
	}
	return plan
}

func choose(s Situation, j PolicyResult) Plan {
	o := s.Facts.Object
	drop := DropReferences{Object: o, References: s.References}
	switch s.Kind {
	case Settled:
		return settled(s)
	case HasUnreadableOwner:
		return retryUnread(s.Facts)
	case HasUnresolvableOwner:
		return Plan{Reason: OwnersUnresolvable}
	case HasOrphaningOwner:
		drop.Orphan = true
		return Plan{Reason: OrphanedByOwner, Action: drop}
	case PartlyOwned:
		return Plan{Reason: OwnerRemains, Action: drop, Retry: s.Facts.hasUnwatchedOwner()}
	case Ownerless:
		return collect(s, j)
	case Held:
		return propagate(s, j)
	case ReleasesOrphans, WaitsForDependents:
		return Plan{Reason: DependentsRemain}
	case WaitsForItself:
		edge := s.Facts.Cycle
		return Plan{Reason: OwnershipCycle, Action: Unblock{Object: edge.Dependent.Object, Owner: edge.Owner}}
	case Unconfirmed:
		if s.Facts.ConfirmError != "" {
			return Plan{Reason: DependentsUnreadable, Retry: true}
		}
		return Plan{Reason: DependentsUnconfirmed, ConfirmDependents: true}
	case DoneOrphaning:
		return Plan{Reason: DependentsOrphaned, Action: RemoveFinalizer{Object: o, Finalizer: metav1.FinalizerOrphanDependents}}
	case DoneWaiting:
		return Plan{Reason: DependentsGone, Action: RemoveFinalizer{Object: o, Finalizer: metav1.FinalizerDeleteDependents}}
	default:
		return Plan{}
	}
}

// retryUnread returns a plan that keeps an object and retries.
func retryUnread(f Facts) Plan {
	if f.UnreadOwners != 0 || f.Object.Truncated {
		return Plan{Reason: TooManyOwners, Retry: true}
	}
	return Plan{Reason: OwnersUnreadable, Retry: true}
}

// settled returns a plan that removes an obsolete state annotation, or does nothing.
func settled(s Situation) Plan {
	o := s.Facts.Object
	if o.HasState && !o.Terminating {
		return Plan{Reason: StateObsolete, Action: RemoveState{o}, Retry: s.Facts.hasUnwatchedOwner()}
	}
	return Plan{Retry: s.Facts.hasUnwatchedOwner()}
}

func collect(s Situation, j PolicyResult) Plan {
	o, v := s.Facts.Object, j.Verdict
	propagation, known := propagations[v.Propagation]
	switch {
	case j.Fault:
		return Plan{Reason: PolicyFault, Retry: true}
	case v.Decision == hostabi.DecisionDelete && known:
		if left := j.remainingDelay(v.Delay); left > 0 {
			return j.wait(DelayedByPolicy, o, left)
		}
		return Plan{Reason: s.reason(), Action: Delete{
			Object: o, Propagation: propagation, GracePeriodSeconds: cmp.Or(v.GracePeriodSeconds, s.Facts.gracePeriodSeconds()),
		}}
	case v.Decision == hostabi.DecisionOrphan:
		return Plan{Reason: KeptByPolicy, Action: DropReferences{Object: o, References: s.References}}
	case v.Decision == hostabi.DecisionWait:
		return j.wait(PolicyWaiting, o, v.WaitFor())
	default:
		return Plan{Reason: NoDecision, Retry: true}
	}
}

// mustSaveState reports whether the state annotation must be written.
func (j PolicyResult) mustSaveState(o graph.Object) bool {
	return objectstate.Supported(o.Kind.Group) && !j.State.Equal(j.StoredState)
}

// remainingDelay returns the remaining part of a delay: all of it as long as it is unknown when
// the object lost its owners.
func (j PolicyResult) remainingDelay(delay hostabi.Duration) time.Duration {
	since := j.State.OwnersAbsentSince
	if since.IsZero() {
		return time.Duration(delay)
	}
	return min(time.Duration(delay), since.Add(time.Duration(delay)).Sub(j.Now))
}

// wait returns a plan that decides again after a time, and stores the state until then.
func (j PolicyResult) wait(reason Reason, o graph.Object, after time.Duration) Plan {
	plan := Plan{Reason: reason, RequeueAfter: max(after, time.Duration(hostabi.MinWait))}
	if j.mustSaveState(o) {
		plan.Action = SaveState{Object: o, State: j.State}
	}
	return plan
}

// ChooseHold returns the plan for the hold of an object that is not being deleted.
func ChooseHold(o graph.Object, required bool) Plan {
	switch {
	case o.Terminating || o.Held == required:
		return Plan{}
	case required:
		return Plan{Reason: HoldRequired, Action: AddFinalizer{o, graph.Hold}}
	default:
		return Plan{Reason: HoldObsolete, Action: RemoveFinalizer{Object: o, Finalizer: graph.Hold}}
	}
}

// propagate carries out the decision about a held object's dependents, one write at a
// time: store the state, delete the object again with the propagation policy, remove the
// hold. Each step follows from the object's current state, so the sequence can resume
// after an interruption.
func propagate(s Situation, j PolicyResult) Plan {
	o, v := s.Facts.Object, j.Verdict
	propagation, known := propagations[propagationOf(j)]
	switch {
	case j.Fault:
		return Plan{Reason: PolicyFault, Retry: true}
	case v.Decision == hostabi.DecisionWait:
		return j.wait(PolicyWaiting, o, v.WaitFor())
	case !known:
		return Plan{Reason: NoDecision, Retry: true}
	case propagation == requestedPropagation(o):
		return Plan{Reason: HoldReleased, Action: RemoveFinalizer{Object: o, Finalizer: graph.Hold}}
	case j.mustSaveState(o):
		return Plan{Reason: PropagationDecided, Action: SaveState{Object: o, State: j.State}}
	default:
		return Plan{Reason: PropagationDecided, Action: Propagate{o, propagation}}
	}
}

// propagationOf returns the propagation policy that a verdict about dependents decides.
func propagationOf(j PolicyResult) hostabi.Propagation {
	return hostabi.Propagation(j.Verdict.Decision)
}

// requestedPropagation returns the propagation policy that the object's finalizers stand for. The
// orphan finalizer takes precedence (G-23).
func requestedPropagation(o graph.Object) metav1.DeletionPropagation {
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

// reason returns the reason why the object has no owners.
func (s Situation) reason() Reason {
	if len(s.Facts.references(Waiting)) != 0 {
		return OwnersWaiting
	}
	return OwnersAbsent
}

func (f Facts) hasUnwatchedOwner() bool {
	for _, o := range f.Owners {
		if o.Unwatched && o.Status == Present {
			return true
		}
	}
	return false
}
