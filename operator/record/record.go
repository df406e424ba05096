// Package record keeps what was decided, and why: one entry for each decision,
// a bounded number of them.
//
// From the entries it answers the question that Kubernetes leaves open: why
// was this object deleted, or why is it still here (defect 3.24).
package record

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// Object names an object in an entry.
type Object struct {
	APIVersion      string    `json:"apiVersion"`
	Kind            string    `json:"kind"`
	Namespace       string    `json:"namespace,omitempty"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
}

// String returns Kind namespace/name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

// ObjectOf names a graph object.
func ObjectOf(o graph.Object) Object {
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	return Object{APIVersion: apiVersion, Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
}

// Owner is one of the object's owner references and how it stood.
type Owner struct {
	Object   Object `json:"object"`
	Standing string `json:"standing"`
	Because  string `json:"because,omitempty"`
}

// maxOwners is how many owners an entry names. An object may have thousands, and there
// are thousands of entries.
const maxOwners = 20

// OwnersOf names the owners among the facts of a decision, and if these are too many, some
// of them: those first that are not absent, since they decide. Owners are looked for in the
// object's own namespace.
func OwnersOf(f decide.Facts) []Owner {
	named := f.Owners
	if len(named) > maxOwners {
		named = slices.Clone(named)
		slices.SortStableFunc(named, func(a, b decide.Owner) int {
			return cmp.Compare(number(a.Standing == decide.Absent), number(b.Standing == decide.Absent))
		})
		named = named[:maxOwners]
	}
	owners := make([]Owner, 0, len(named))
	for _, o := range named {
		ref := o.Reference
		owners = append(owners, Owner{
			Object:   Object{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: f.Object.Namespace, Name: ref.Name, UID: ref.UID},
			Standing: o.Standing.String(),
			Because:  o.Reason,
		})
	}
	return owners
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Blocker is an object that another one's deletion waits for, and why it takes
// its time.
type Blocker struct {
	Object Object `json:"object"`
	State  string `json:"state"`
}

// BlockersOf names some of the objects that a deletion waits for.
func BlockersOf(f decide.Facts) []Blocker {
	var blockers []Blocker
	for _, b := range f.Blockers {
		apiVersion, kind := b.Object.Kind.ToAPIVersionAndKind()
		state := "not being deleted yet"
		switch {
		case b.Held:
			state = "being deleted, and held by its finalizers"
		case b.Terminating:
			state = "being deleted"
		}
		blockers = append(blockers, Blocker{State: state, Object: Object{
			APIVersion: apiVersion, Kind: kind, Namespace: b.Object.Namespace, Name: b.Object.Name, UID: b.Object.UID,
		}})
	}
	return blockers
}

// Action is what was decided to be done, as a word.
type Action string

// The actions of entries.
const (
	None            Action = "None"
	Delete          Action = "Delete"
	Propagate       Action = "Propagate"
	DropReferences  Action = "DropOwnerReferences"
	RemoveFinalizer Action = "RemoveFinalizer"
	AddFinalizer    Action = "AddFinalizer"
	Unblock         Action = "UnblockOwner"
	Remember        Action = "Remember"
	Forget          Action = "Forget"
)

// ActionOf returns the word for an action, and what there is to say about how
// it is done: the propagation policy, the references or the finalizer.
func ActionOf(action decide.Action) (Action, string) {
	switch a := action.(type) {
	case decide.Delete:
		return Delete, string(a.Propagation)
	case decide.Propagate:
		return Propagate, string(a.Propagation)
	case decide.DropReferences:
		var names []string
		for _, ref := range a.References[:min(len(a.References), maxOwners)] {
			names = append(names, ref.Kind+" "+ref.Name)
		}
		how := strings.Join(names, ", ")
		if more := len(a.References) - len(names); more > 0 {
			how += fmt.Sprintf(" and %d more", more)
		}
		return DropReferences, how
	case decide.RemoveFinalizer:
		return RemoveFinalizer, a.Finalizer
	case decide.AddFinalizer:
		return AddFinalizer, a.Finalizer
	case decide.Unblock:
		return Unblock, ObjectOf(a.Object).String()
	case decide.Remember:
		switch p := a.Memo.Propagation; {
		case p != nil:
			return Remember, "its dependents are to go by " + p.Decision
		case a.Memo.OwnerlessSince.IsZero():
			return Remember, "what becomes of its dependents is still to be decided"
		}
		return Remember, "without an owner since " + a.Memo.OwnerlessSince.Format(time.RFC3339)
	case decide.Forget:
		return Forget, ""
	default:
		return None, ""
	}
}

// Reason is why something was decided. Reasons are those of plans, and what whoever
// else decides calls its own.
type Reason = decide.Reason

// Entry is one decision and what became of it.
type Entry struct {
	Time     time.Time     `json:"time"`
	Object   Object        `json:"object"`
	Reason   Reason        `json:"reason"`
	Action   Action        `json:"action"`
	How      string        `json:"how,omitempty"` // with None, the finalizer that keeps it, if one does
	Result   string        `json:"result,omitempty"`
	Error    string        `json:"error,omitempty"`
	Owners   []Owner       `json:"owners,omitempty"`
	Policy   string        `json:"policy,omitempty"` // whose verdict or fault it goes by, if one was asked
	Asked    []Asked       `json:"asked,omitempty"`  // all that were, in order
	Until    *time.Time    `json:"until,omitempty"`  // when it is looked at again
	Because  string        `json:"because,omitempty"`
	Duration time.Duration `json:"durationNanoseconds"`

	// OwnersOmitted is how many owners there are that Owners does not name.
	OwnersOmitted int `json:"ownersOmitted,omitempty"`

	// WaitsFor names some of the dependents that hold the object up, if any do,
	// and Blocking is how many there are (defect 3.29).
	WaitsFor []Blocker `json:"waitsFor,omitempty"`
	Blocking int       `json:"blocking,omitempty"`

	// Intents are what a module had done, or tried to, before it said what it says.
	Intents []Intent `json:"intents,omitempty"`

	// ExchangesDropped tells that there were transcripts, which had to make room for
	// newer ones; ExchangesHidden that they name what the client may not see.
	ExchangesDropped bool `json:"exchangesDropped,omitempty"`
	ExchangesHidden  bool `json:"exchangesHidden,omitempty"`

	// Chain is why, from the object upwards: each link's owner was deleted for
	// the reason that the next one tells.
	Chain []Link `json:"chain,omitempty"`
}

// Asked is a policy that was asked, and what it said.
type Asked struct {
	Policy     string `json:"policy"`
	Generation int64  `json:"generation"`
	Mode       string `json:"mode"`           // Monitor: what it said changed nothing
	Hook       string `json:"hook,omitempty"` // that it was asked by
	Module     string `json:"module,omitempty"`
	Digest     string `json:"digest,omitempty"`
	Decision   string `json:"decision,omitempty"`
	Reason     string `json:"reason,omitempty"` // as the policy gave it
	Fault      string `json:"fault,omitempty"`
	Fuel       int64  `json:"fuel,omitempty"`
	Rounds     int    `json:"rounds,omitempty"`
	Duration   int64  `json:"durationNanoseconds"`

	// Exchanges are the transcript: what a module was asked and answered, round by
	// round. It is replayable if it is there with nothing replaced by a hash.
	Exchanges  []policies.Exchange `json:"exchanges,omitempty"`
	Replayable bool                `json:"replayable"`
}

// says returns what a policy said in a few words.
func (a Asked) says() string {
	said := a.Decision
	switch {
	case a.Fault != "":
		said = "is at fault: " + a.Fault
	case a.Reason != "":
		said += " (" + a.Reason + ")"
	}
	if a.Mode == "Monitor" {
		said += " [Monitor: without effect]"
	}
	return a.Policy + ": " + said
}

// Link is one step of an owner chain.
type Link struct {
	Owner   Owner  `json:"owner"`
	Deleted string `json:"deleted,omitempty"` // why, if it was by us
}

// intentsTold is how many of an entry's intents its sentence tells.
const intentsTold = 5

// String tells the decision and its chain as one sentence.
func (e Entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Object, e.did())
	if e.Result != "" && e.Result != done {
		fmt.Fprintf(&b, " [%s]", e.Result)
	}
	if len(e.Chain) == 0 {
		fmt.Fprintf(&b, ", %s", e.Reason)
	}
	if because := e.because(); because != "" {
		fmt.Fprintf(&b, " (%s)", because)
	}
	for _, asked := range e.Asked {
		fmt.Fprintf(&b, ", %s", asked.says())
	}
	for _, intent := range e.Intents[:min(len(e.Intents), intentsTold)] {
		fmt.Fprintf(&b, ", %s", intent)
	}
	if more := len(e.Intents) - intentsTold; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	for _, blocker := range e.WaitsFor {
		fmt.Fprintf(&b, ", waits for %s (%s)", blocker.Object, blocker.State)
	}
	if more := e.Blocking - len(e.WaitsFor); more > 0 && len(e.WaitsFor) != 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	for _, link := range e.Chain {
		fmt.Fprintf(&b, ", since %s is %s", link.Owner.Object, strings.ToLower(link.Owner.Standing))
		if link.Owner.Because != "" {
			fmt.Fprintf(&b, " (%s)", link.Owner.Because)
		}
	}
	return b.String()
}

// because is what Because says beyond what was asked and answered.
func (e Entry) because() string {
	because := e.Because
	for _, a := range e.Asked {
		if because == a.Reason || because == a.Fault {
			return ""
		}
		if more, ok := strings.CutPrefix(because, a.Reason+"; "); ok && a.Reason != "" {
			because = more
		}
	}
	return because
}

// did says what was decided, as a past participle.
func (e Entry) did() string {
	switch e.Action {
	case Delete:
		return "deleted (" + e.How + ")"
	case Propagate:
		return "dependents to go by " + e.How
	case DropReferences:
		return "reference to " + e.How + " dropped"
	case RemoveFinalizer:
		return "finalizer " + e.How + " removed"
	case AddFinalizer:
		return "finalizer " + e.How + " added"
	case Unblock:
		return "owner of " + e.How + " unblocked"
	case Remember:
		return "kept for now, " + e.How
	case Forget:
		return "memo removed"
	case None:
		if e.How == "" {
			return "left as it is"
		}
		return "kept by the finalizer " + e.How
	default:
		return "left as it is"
	}
}
