package hostabi

import (
	"encoding/json"
	"time"
)

// Decision is what a policy answers.
type Decision string

// The decisions, with the hooks that they answer. The empty Decision allows
// nothing.
const (
	// DecisionDelete (collect) deletes an object without owners.
	DecisionDelete Decision = "Delete"

	// DecisionOrphan (collect) keeps it, without its dangling references;
	// (propagate) keeps the dependents of a deleted owner.
	DecisionOrphan Decision = "Orphan"

	// DecisionBackground and DecisionForeground (propagate) delete a deleted
	// owner's dependents after it or before it.
	DecisionBackground Decision = "Background"
	DecisionForeground Decision = "Foreground"

	// DecisionDone (finalize) lets the object go, as far as the module is
	// concerned: its finalizer is removed.
	DecisionDone Decision = "Done"

	// DecisionFail (finalize) gives up for good: the object stays until a human
	// has dealt with it.
	DecisionFail Decision = "Fail"

	// DecisionAct asks the host to carry out intents, and to ask again with
	// their results. Finalize may ask for anything; propagate and collect for
	// reads alone, get and list.
	DecisionAct Decision = "Act"

	// DecisionWait (all but validate) asks for the question to be put again.
	DecisionWait Decision = "Wait"

	// DecisionAbstain (propagate, collect) leaves the answer to the next policy,
	// and at the end to what Kubernetes does.
	DecisionAbstain Decision = "Abstain"

	// DecisionValid and DecisionInvalid (validate) accept and refuse settings.
	DecisionValid   Decision = "Valid"
	DecisionInvalid Decision = "Invalid"
)

// Propagation is the propagation policy of a delete.
type Propagation string

// The propagation policies. The empty Propagation is none of them: the built-in
// choice is made.
const (
	PropagationBackground Propagation = "Background"
	PropagationForeground Propagation = "Foreground"
	PropagationOrphan     Propagation = "Orphan"
)

// Verdict is a policy's answer. The zero Verdict allows nothing, and so keeps
// the object. A field that means nothing with the decision, or in answer to the
// hook, is a fault.
type Verdict struct {
	Decision Decision `json:"decision"`

	// Propagation is what becomes of the dependents of an object that collect
	// deletes.
	Propagation Propagation `json:"propagation,omitempty"`

	// GracePeriodSeconds is what an object that collect deletes is given to end.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// Delay has collect delete the object once it has been without an owner for
	// so long, counted from the request's OwnerlessSince. What is left of it is waited
	// for, and MinWait at least.
	Delay Duration `json:"delay,omitempty"`

	// After is when to ask again, with Wait: DefaultWait if there is none, and MinWait at
	// least.
	After Duration `json:"after,omitempty"`

	// Dependents are exceptions by kind to what propagate decides.
	Dependents []DependentDecision `json:"dependents,omitempty"`

	// Intents are what Act asks for, in this order.
	Intents []Intent `json:"intents,omitempty"`

	// State is any JSON value for the next request to bring back, with Act and
	// Wait: the answers after which there is one. Without one, what was
	// remembered before stays.
	State json.RawMessage `json:"state,omitempty"`

	// Reason is for people: in records, status and refusals.
	Reason string `json:"reason,omitempty"`
}

// WaitFor is how long a Wait lasts.
func (v Verdict) WaitFor() time.Duration {
	if v.After == 0 {
		return time.Duration(DefaultWait)
	}
	return time.Duration(max(v.After, MinWait))
}

// DependentDecision says what becomes of the dependents of one kind:
// DecisionDelete or DecisionOrphan.
type DependentDecision struct {
	Group    string   `json:"group,omitempty"` // empty: the core group
	Kind     string   `json:"kind"`
	Decision Decision `json:"decision"`
}

// A policy's answers, and the fields that mean something with each beyond
// decision and reason.
var answers = map[Hook][]answer{
	HookPropagate: {
		{DecisionBackground, []string{"dependents"}},
		{DecisionForeground, []string{"dependents"}},
		{DecisionOrphan, []string{"dependents"}},
		{DecisionWait, []string{"after", "state"}},
		{DecisionAct, []string{"intents", "state"}},
		{DecisionAbstain, nil},
	},
	HookCollect: {
		{DecisionDelete, []string{"propagation", "gracePeriodSeconds", "delay"}},
		{DecisionOrphan, nil},
		{DecisionWait, []string{"after", "state"}},
		{DecisionAct, []string{"intents", "state"}},
		{DecisionAbstain, nil},
	},
	HookFinalize: {
		{DecisionDone, nil},
		{DecisionAct, []string{"intents", "state"}},
		{DecisionWait, []string{"after", "state"}},
		{DecisionFail, nil},
	},
	HookValidate: {
		{DecisionValid, nil},
		{DecisionInvalid, nil},
	},
}

type answer struct {
	decision Decision
	fields   []string
}

// Decisions are the decisions that answer a hook.
func Decisions(hook Hook) []Decision {
	var list []Decision
	for _, a := range answers[hook] {
		list = append(list, a.decision)
	}
	return list
}

// Fields are the fields of a verdict that mean something with a decision in
// answer to a hook, beyond decision and reason.
func Fields(hook Hook, decision Decision) []string {
	for _, a := range answers[hook] {
		if a.decision == decision {
			return append([]string(nil), a.fields...)
		}
	}
	return nil
}
