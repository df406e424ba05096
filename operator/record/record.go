// Package record keeps decision records: one entry for each decision, with its
// reason, up to a maximum number.
//
// The entries answer a question that Kubernetes leaves open: why was this object
// deleted, or why does it still exist (defect 3.24).
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

// Object identifies an object in an entry.
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

// ObjectOf identifies an object of the graph.
func ObjectOf(o graph.Object) Object {
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	return Object{APIVersion: apiVersion, Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
}

// Owner is one of the object's owner references with its status.
type Owner struct {
	Object  Object `json:"object"`
	Status  string `json:"status"`
	Message string `json:"because,omitempty"`
}

// maxOwnersShown is the maximum number of owners in an entry. An object may have thousands,
// and there are thousands of entries.
const maxOwnersShown = 20

// OwnersOf returns the owners from the facts of a decision, at most maxOwnersShown. Owners that
// are not absent come first if some are omitted, since they determine the decision. Owners
// are listed with the object's own namespace.
func OwnersOf(f decide.Facts) []Owner {
	named := f.Owners
	if len(named) > maxOwnersShown {
		named = slices.Clone(named)
		slices.SortStableFunc(named, func(a, b decide.Owner) int {
			return cmp.Compare(boolToInt(a.Status == decide.Absent), boolToInt(b.Status == decide.Absent))
		})
		named = named[:maxOwnersShown]
	}
	owners := make([]Owner, 0, len(named))
	for _, o := range named {
		ref := o.Reference
		owners = append(owners, Owner{
			Object:  Object{APIVersion: ref.APIVersion, Kind: ref.Kind, Namespace: f.Object.Namespace, Name: ref.Name, UID: ref.UID},
			Status:  o.Status.String(),
			Message: o.Message,
		})
	}
	return owners
}

func boolToInt(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Blocker is a dependent that the foreground deletion of its owner waits for, with
// its state.
type Blocker struct {
	Object Object `json:"object"`
	State  string `json:"state"`
}

// BlockersOf returns some of the dependents that a deletion waits for.
func BlockersOf(f decide.Facts) []Blocker {
	var blockers []Blocker
	for _, b := range f.Blockers {
		apiVersion, kind := b.Object.Kind.ToAPIVersionAndKind()
		state := "not being deleted yet"
		switch {
		case b.HasFinalizers:
			state = "being deleted, waiting for its finalizers"
		case b.Terminating:
			state = "being deleted"
		}
		blockers = append(blockers, Blocker{State: state, Object: Object{
			APIVersion: apiVersion, Kind: kind, Namespace: b.Object.Namespace, Name: b.Object.Name, UID: b.Object.UID,
		}})
	}
	return blockers
}

// Action is the type of the write that was decided.
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
	SaveState       Action = "SaveState"
	RemoveState     Action = "RemoveState"
)

// ActionOf returns the type of an action and its details: the propagation policy, the
// owner references or the finalizer.
func ActionOf(action decide.Action) (Action, string) {
	switch a := action.(type) {
	case decide.Delete:
		return Delete, string(a.Propagation)
	case decide.Propagate:
		return Propagate, string(a.Propagation)
	case decide.DropReferences:
		var names []string
		for _, ref := range a.References[:min(len(a.References), maxOwnersShown)] {
			names = append(names, ref.Kind+" "+ref.Name)
		}
		detail := strings.Join(names, ", ")
		if more := len(a.References) - len(names); more > 0 {
			detail += fmt.Sprintf(" and %d more", more)
		}
		return DropReferences, detail
	case decide.RemoveFinalizer:
		return RemoveFinalizer, a.Finalizer
	case decide.AddFinalizer:
		return AddFinalizer, a.Finalizer
	case decide.Unblock:
		return Unblock, ObjectOf(a.Object).String()
	case decide.SaveState:
		switch p := a.State.Propagation; {
		case p != nil:
			return SaveState, "propagation policy " + p.Decision
		case a.State.OwnersAbsentSince.IsZero():
			return SaveState, "propagation policy not decided yet"
		}
		return SaveState, "no owner since " + a.State.OwnersAbsentSince.Format(time.RFC3339)
	case decide.RemoveState:
		return RemoveState, ""
	default:
		return None, ""
	}
}

// GracePeriodOf returns the grace period of an action in seconds; nil if it sets none.
func GracePeriodOf(action decide.Action) *int64 {
	switch a := action.(type) {
	case decide.Delete:
		return a.GracePeriodSeconds
	case decide.SaveState:
		if p := a.State.Propagation; p != nil {
			return p.GracePeriodSeconds
		}
	}
	return nil
}

// Reason is the reason of a decision: that of a plan, or one of the reasons of
// finalizers.
type Reason = decide.Reason

// Entry is one decision and its result.
type Entry struct {
	Time        time.Time     `json:"time"`
	Object      Object        `json:"object"`
	Reason      Reason        `json:"reason"`
	Action      Action        `json:"action"`
	Detail      string        `json:"how,omitempty"` // details of the action; with None, the finalizer that keeps the object, if any
	Result      string        `json:"result,omitempty"`
	Error       string        `json:"error,omitempty"`
	Owners      []Owner       `json:"owners,omitempty"`
	Policy      string        `json:"policy,omitempty"` // the policy that decided, by its verdict or fault
	Evaluations []Evaluation  `json:"asked,omitempty"`  // all evaluations, in order
	NextAttempt *time.Time    `json:"until,omitempty"`  // time of the next decision
	Message     string        `json:"because,omitempty"`
	Duration    time.Duration `json:"durationNanoseconds"`

	// GracePeriodSeconds is the grace period of the deletion, or that which a decision about dependents sets for them; nil:
	// each object's own.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// OwnersOmitted is the number of owners that Owners does not contain.
	OwnersOmitted int `json:"ownersOmitted,omitempty"`

	// Blockers contains some of the dependents that block the object's deletion, and
	// Blocking is the number of all of them (defect 3.29).
	Blockers []Blocker `json:"waitsFor,omitempty"`
	Blocking int       `json:"blocking,omitempty"`

	// Intents are the intents of the module that were carried out, or tried, before its verdict.
	Intents []Intent `json:"intents,omitempty"`

	// ExchangesDropped is set if the transcripts were evicted by newer ones, and
	// ExchangesWithheld if they are withheld because the client may not see their content.
	ExchangesDropped  bool `json:"exchangesDropped,omitempty"`
	ExchangesWithheld bool `json:"exchangesHidden,omitempty"`

	// Chain leads from the object to its owners: each link's owner was deleted because
	// of the owner in the next link.
	Chain []Link `json:"chain,omitempty"`

	// Root is the object whose deletion began the cascade: the last owner in the chain. Empty if
	// the decision was not about an owner that is gone.
	Root types.UID `json:"root,omitempty"`
}

// Evaluation is the evaluation of one policy or finalizer, and its result.
type Evaluation struct {
	Policy     string `json:"policy"`
	Generation int64  `json:"generation"`
	Mode       string `json:"mode"` // in Monitor, the verdict had no effect
	Hook       string `json:"hook,omitempty"`
	Module     string `json:"module,omitempty"`
	Digest     string `json:"digest,omitempty"`
	Decision   string `json:"decision,omitempty"`
	Reason     string `json:"reason,omitempty"` // of the verdict
	Fault      string `json:"fault,omitempty"`
	Fuel       int64  `json:"fuel,omitempty"`
	Rounds     int    `json:"rounds,omitempty"`
	Duration   int64  `json:"durationNanoseconds"`

	// Exchanges are the transcript: the request and the verdict of each round. It is
	// replayable if it is present and nothing in it was replaced by a hash.
	Exchanges  []policies.Exchange `json:"exchanges,omitempty"`
	Replayable bool                `json:"replayable"`
}

// summary returns a short description of the result.
func (a Evaluation) summary() string {
	text := a.Decision
	switch {
	case a.Fault != "":
		text = "fault: " + a.Fault
	case a.Reason != "":
		text += " (" + a.Reason + ")"
	}
	if a.Mode == "Monitor" {
		text += " [Monitor: without effect]"
	}
	return a.Policy + ": " + text
}

// Link is one step of an owner chain.
type Link struct {
	Owner         Owner  `json:"owner"`
	DeletedReason string `json:"deleted,omitempty"` // reason of the deletion, if Gleaner deleted it
}

// maxIntentsShown is the maximum number of intents in the string of an entry.
const maxIntentsShown = 5

// String returns the decision and its chain as one sentence.
func (e Entry) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Object, e.actionText())
	if e.Result != "" && e.Result != done {
		fmt.Fprintf(&b, " [%s]", e.Result)
	}
	if len(e.Chain) == 0 {
		fmt.Fprintf(&b, ", %s", e.Reason)
	}
	if because := e.extraMessage(); because != "" {
		fmt.Fprintf(&b, " (%s)", because)
	}
	for _, evaluation := range e.Evaluations {
		fmt.Fprintf(&b, ", %s", evaluation.summary())
	}
	for _, intent := range e.Intents[:min(len(e.Intents), maxIntentsShown)] {
		fmt.Fprintf(&b, ", %s", intent)
	}
	if more := len(e.Intents) - maxIntentsShown; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	for _, blocker := range e.Blockers {
		fmt.Fprintf(&b, ", waits for %s (%s)", blocker.Object, blocker.State)
	}
	if more := e.Blocking - len(e.Blockers); more > 0 && len(e.Blockers) != 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	for _, link := range e.Chain {
		fmt.Fprintf(&b, ", since %s is %s", link.Owner.Object, strings.ToLower(link.Owner.Status))
		if link.Owner.Message != "" {
			fmt.Fprintf(&b, " (%s)", link.Owner.Message)
		}
	}
	return b.String()
}

// extraMessage returns the part of Because that does not repeat a verdict or fault.
func (e Entry) extraMessage() string {
	because := e.Message
	for _, a := range e.Evaluations {
		if because == a.Reason || because == a.Fault {
			return ""
		}
		if more, ok := strings.CutPrefix(because, a.Reason+"; "); ok && a.Reason != "" {
			because = more
		}
	}
	return because
}

// gracePeriod returns the grace period as the end of a list.
func (e Entry) gracePeriod() string {
	if e.GracePeriodSeconds == nil {
		return ""
	}
	return fmt.Sprintf(", grace period %ds", *e.GracePeriodSeconds)
}

// actionText returns the action as a past participle.
func (e Entry) actionText() string {
	switch e.Action {
	case Delete:
		return "deleted (" + e.Detail + e.gracePeriod() + ")"
	case Propagate:
		return "deleted again (" + e.Detail + ")"
	case DropReferences:
		return "reference to " + e.Detail + " dropped"
	case RemoveFinalizer:
		return "finalizer " + e.Detail + " removed"
	case AddFinalizer:
		return "finalizer " + e.Detail + " added"
	case Unblock:
		return "owner of " + e.Detail + " unblocked"
	case SaveState:
		return "state saved: " + e.Detail + e.gracePeriod()
	case RemoveState:
		return "state annotation removed"
	case None:
		switch e.Reason {
		case decide.DeletedByCollector:
			return "the built-in garbage collector may delete it"
		case decide.CascadeCompleted, decide.CascadeStalled:
			return "deletion cascade"
		default:
		}
		if e.Detail == "" {
			return "unchanged"
		}
		return "kept by the finalizer " + e.Detail
	default:
		return "unchanged"
	}
}
