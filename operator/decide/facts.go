// Package decide turns facts about one object into a plan: at most one write, with
// its reason.
//
// It is pure: no clock, no client, no logger, no randomness. Equal facts give
// equal plans, so a recorded decision can be replayed. Facts are first classified
// into a situation. If the object has lost its last owner, policies are evaluated.
// Choose returns the plan for both.
package decide

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// OwnerStatus is the state of the owner that an owner reference names. The zero
// OwnerStatus is Unknown, for an owner that could not be read. It is never treated as
// Absent, since that mistake would lose data.
type OwnerStatus uint8

const (
	Unknown OwnerStatus = iota
	Present
	Absent
	Waiting      // being deleted in the foreground: it waits for its dependents
	Orphaning    // being deleted with propagation policy Orphan
	Unresolvable // a namespaced type, referenced by a cluster-scoped object (G-34)
)

// String returns the name that tests, records and logs use.
func (s OwnerStatus) String() string {
	names := [...]string{"Unknown", "Present", "Absent", "Waiting", "Orphaning", "Unresolvable"}
	if int(s) < len(names) {
		return names[s]
	}
	return "invalid"
}

// Owner is one owner reference of an object with its status.
type Owner struct {
	Reference metav1.OwnerReference
	Status    OwnerStatus

	// Message is a message that explains the status.
	Message string

	// ActualNamespace is the namespace of the object with the owner's UID, if it is not
	// the dependent's namespace (G-33).
	ActualNamespace string

	// Unwatched is set if the status comes from a live read only: the watch has not
	// delivered the owner, and would not deliver its deletion.
	Unwatched bool

	// DeletionVersion is the resourceVersion of the owner's deletion if it is absent, and one in which it was being
	// deleted if it is orphaning; 0 if it is not known or can't be compared with those of other types.
	DeletionVersion uint64

	// Ordered is set if the owner's dependents are deleted in order. The built-in garbage collector
	// doesn't know of that, and regards the owner as present.
	Ordered bool

	// GracePeriodSeconds is, for an owner that waits, the grace period that was decided for everything
	// below it or one of its own owners; nil if none was.
	GracePeriodSeconds *int64

	// FoundAbsentAt is when the owner was found to be absent; zero otherwise.
	FoundAbsentAt time.Time
}

// Facts is the input of a decision about one object. The zero Facts give a plan
// that changes nothing.
type Facts struct {
	Object graph.Object
	Owners []Owner // one for each of Object.Owners, in the same order

	// UnreadOwners is the number of owners that were not read because the object has too
	// many. Their status is Unknown.
	UnreadOwners int

	Dependents int // objects that name this one as their owner
	Blocking   int // references to this object that block its deletion

	// Blockers are some of the objects that Blocking counts.
	Blockers []graph.Blocker

	// Confirmed is set if a list, made after the object was seen terminating, has
	// shown no dependent that the graph does not have (defects 3.16, 3.17).
	Confirmed bool

	// CarriedOut is the propagation policy that a client requested for an object with a hold
	// and that the built-in garbage collector has carried out, so that the object's
	// finalizers no longer show it; "" if there is none. It is for companion mode only.
	CarriedOut metav1.DeletionPropagation

	// ConfirmError is the error message of that list, if it failed.
	ConfirmError string

	// Cycle is the edge to unblock, if the object waits for itself.
	Cycle *graph.Edge
}

// gracePeriodSeconds returns the longest grace period that owners set for the object; nil if none does.
func (f Facts) gracePeriodSeconds() (longest *int64) {
	for _, o := range f.Owners {
		if s := o.GracePeriodSeconds; s != nil && (longest == nil || *s > *longest) {
			longest = s
		}
	}
	return longest
}

// inOrder reports whether an owner of the object deletes its dependents in order.
func (f Facts) inOrder() bool {
	return slices.ContainsFunc(f.Owners, func(o Owner) bool { return o.Ordered })
}

// RequestedPropagation returns the propagation policy that the client requested for the
// object's dependents, as far as the object's finalizers show or have shown.
func (f Facts) RequestedPropagation() hostabi.RequestedPropagation {
	requested := requestedPropagation(f.Object)
	if requested == metav1.DeletePropagationBackground {
		requested = f.CarriedOut
	}
	return cmp.Or(hostabi.RequestedPropagation(requested), hostabi.RequestedUnspecified)
}
