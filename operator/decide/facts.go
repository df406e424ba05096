// Package decide turns facts about one object into a plan: at most one write,
// and why.
//
// It is pure: no clock, no client, no logger, no randomness. Equal facts give
// equal plans, which is what lets a recorded decision be replayed. Facts are
// first classified into a situation; where the situation is that an object
// lost its last owner, a policy is asked; Choose then makes the plan of both.
package decide

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Standing is how an owner reference stands once everything is known that can
// be known. Unknown is the zero Standing, an owner that could not be read. It
// is never treated as Absent, since the cost of that mistake is somebody's
// data.
type Standing uint8

const (
	Unknown Standing = iota
	Present
	Absent
	Waiting      // being deleted in the foreground: it waits for its dependents
	Orphaning    // being deleted, and to leave its dependents behind
	Unresolvable // names a namespaced type from a cluster-scoped object (G-34)
)

// String returns the name that stories, records and logs use.
func (s Standing) String() string {
	names := [...]string{"Unknown", "Present", "Absent", "Waiting", "Orphaning", "Unresolvable"}
	if int(s) < len(names) {
		return names[s]
	}
	return "invalid"
}

// Owner is one owner reference of an object and how it stands.
type Owner struct {
	Reference metav1.OwnerReference
	Standing  Standing

	// Reason says in words what the standing was learnt from.
	Reason string

	// Elsewhere is the namespace in which the owner's UID is seen, if that is
	// another than the dependent's (G-33); "" if not.
	Elsewhere string

	// Polled says that the owner stands by a read alone: the watch has not
	// shown it, and would not show its end.
	Polled bool

	// LearntAt is when the owner was learnt to be absent; zero otherwise.
	LearntAt time.Time
}

// Facts is all that a decision about one object rests on. The zero Facts give
// a plan that changes nothing.
type Facts struct {
	Object graph.Object
	Owners []Owner // one for each of Object.Owners, in the same order

	// Unread is how many of the owners were not asked for, since the object has too
	// many. They are Unknown.
	Unread int

	Dependents int // objects that name this one as their owner
	Blocking   int // references to this object that block its deletion

	// Blockers are some of the objects that Blocking counts.
	Blockers []graph.Blocker

	// Confirmed says that a read made after the object was seen terminating
	// has shown no dependent that the graph did not know (defects 3.16, 3.17).
	Confirmed bool

	// Unconfirmed is why that read failed, if it did.
	Unconfirmed string

	// Cycle is the edge to unblock, if the object waits for itself.
	Cycle *graph.Edge
}
