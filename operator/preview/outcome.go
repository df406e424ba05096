package preview

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// Outcome is what becomes of an object. Unknown is the zero Outcome.
type Outcome string

// The outcomes.
const (
	Unknown Outcome = ""      // it can't be told: it may go
	Goes    Outcome = "Goes"  // at once
	Waits   Outcome = "Waits" // for something first; see Object.Then
	Stays   Outcome = "Stays"
)

// MarshalText writes the zero Outcome as a word, too.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// String returns the outcome as a word.
func (o Outcome) String() string {
	if o == Unknown {
		return "Unknown"
	}
	return string(o)
}

// Preview is what would become of the objects that a deletion concerns.
type Preview struct {
	Target  types.UID
	Cascade string

	// Objects are in the order of a tree: each before what is below it, the target
	// first.
	Objects []Object

	// Notes are what else there is to know, for people.
	Notes []string
}

// Object is one object, and what would become of it.
type Object struct {
	record.Object
	Depth  int       // in the tree; the target is at 0
	Parent types.UID // in the tree; "" for the target, and for what is in no tree
	Owners int       // references to owners that it has

	Outcome Outcome
	Then    Outcome // of one that waits: what becomes of it after that, if all goes well

	// After is for how long it waits at least, where that is known.
	After time.Duration

	Reason  string // one word, as in records
	Message string // for people
	Policy  string // whose word it goes by, if one was asked

	// Dependents says how its dependents go, where a policy was asked about that.
	Dependents       string
	DependentsPolicy string

	Terminating bool           // it is being deleted already
	Asked       []record.Asked // the policies that were asked about it, with those in Monitor
}

// Going reports whether an object would go, be it later, or might.
func (o Object) Going() bool {
	return o.Outcome == Goes || o.Outcome == Unknown || o.Outcome == Waits && o.Then != Stays
}

// unknown has it not be known what becomes of an object.
func (o *Object) unknown(reason, message string) {
	o.Outcome, o.Then, o.After, o.Policy = Unknown, "", 0, ""
	o.Reason, o.Message = reason, message
}
