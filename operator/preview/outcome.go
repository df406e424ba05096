package preview

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// Outcome is the predicted outcome for an object. The zero Outcome is Unknown.
type Outcome string

// The outcomes.
const (
	Unknown Outcome = ""      // it may be deleted
	Goes    Outcome = "Goes"  // it is deleted immediately
	Waits   Outcome = "Waits" // it waits for something first; see Object.Then
	Stays   Outcome = "Stays" // it is not deleted
)

// MarshalText returns the outcome as a word, also for the zero Outcome.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// String returns the outcome as a word.
func (o Outcome) String() string {
	if o == Unknown {
		return "Unknown"
	}
	return string(o)
}

// Preview is the simulated result of a deletion for the objects that it affects.
type Preview struct {
	Target  types.UID
	Cascade string

	// Objects are in the order of the tree, starting with the target.
	Objects []Object

	// Notes are additional messages.
	Notes []string
}

// Object is one object and its outcome.
type Object struct {
	record.Object
	Depth  int       // in the tree; 0 for the target
	Parent types.UID // in the tree; "" for the target, and for objects outside the tree
	Owners int       // number of owner references

	Outcome Outcome
	Then    Outcome // for Waits: the outcome after the wait, if nothing fails

	// After is the minimum duration of the wait, if known.
	After time.Duration

	Reason  string // as in records
	Message string
	Policy  string // the policy that decided, if any

	// Dependents is the propagation policy that DependentsPolicy decided, if any.
	Dependents       string
	DependentsPolicy string

	Terminating bool                // it is already being deleted
	Evaluations []record.Evaluation // evaluations of policies, including those in Monitor mode
}

// MayBeDeleted reports whether an object is or may be deleted, now or later.
func (o Object) MayBeDeleted() bool {
	return o.Outcome == Goes || o.Outcome == Unknown || o.Outcome == Waits && o.Then != Stays
}

// setUnknown sets the outcome to Unknown.
func (o *Object) setUnknown(reason, message string) {
	o.Outcome, o.Then, o.After, o.Policy = Unknown, "", 0, ""
	o.Reason, o.Message = reason, message
}
