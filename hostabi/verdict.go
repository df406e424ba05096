package hostabi

import (
	"encoding/json"
	"time"
)

// Decision is what a module decides.
type Decision string

// The decisions, with their hooks. The empty Decision allows nothing.
const (
	// DecisionDelete (collect) deletes the object.
	DecisionDelete Decision = "Delete"

	// DecisionOrphan (collect) keeps the object and removes its references to
	// absent owners; (propagate) keeps the dependents of a deleted owner.
	DecisionOrphan Decision = "Orphan"

	// DecisionBackground and DecisionForeground (propagate) delete the dependents
	// of a deleted owner after the owner or before it.
	DecisionBackground Decision = "Background"
	DecisionForeground Decision = "Foreground"

	// DecisionAllow (protect) allows the deletion that a user requests, and
	// DecisionDeny denies it: the user gets the reason.
	DecisionAllow Decision = "Allow"
	DecisionDeny  Decision = "Deny"

	// DecisionRemove (retain) has the object removed, and DecisionKeep keeps it.
	DecisionRemove Decision = "Remove"
	DecisionKeep   Decision = "Keep"

	// DecisionDone (finalize) finishes: the finalizer is removed from the object.
	DecisionDone Decision = "Done"

	// DecisionFail (finalize) fails permanently: the object is kept until someone
	// intervenes.
	DecisionFail Decision = "Fail"

	// DecisionAct asks the host to carry out intents; the module is then evaluated
	// again with their results. Finalize may use all intents, the other hooks only get
	// and list.
	DecisionAct Decision = "Act"

	// DecisionWait (propagate, collect, finalize) asks for another evaluation later.
	DecisionWait Decision = "Wait"

	// DecisionAbstain (propagate, collect, protect, retain) leaves the decision to the next
	// policy, and finally to the default behavior: that of Kubernetes, or of the retention policy.
	DecisionAbstain Decision = "Abstain"

	// DecisionValid and DecisionInvalid (validate) accept and reject settings.
	DecisionValid   Decision = "Valid"
	DecisionInvalid Decision = "Invalid"
)

// Propagation is the propagation policy of a delete request.
type Propagation string

// The propagation policies. The empty Propagation leaves the choice to the API
// server.
const (
	PropagationBackground Propagation = "Background"
	PropagationForeground Propagation = "Foreground"
	PropagationOrphan     Propagation = "Orphan"
)

// Verdict is the output of an evaluation. The zero Verdict allows nothing, so the
// object is kept. A field that is not allowed with the decision or the hook is a
// fault.
type Verdict struct {
	Decision Decision `json:"decision"`

	// Propagation is the propagation policy with which collect deletes the object.
	Propagation Propagation `json:"propagation,omitempty"`

	// GracePeriodSeconds is the grace period with which collect deletes the object, and
	// with Foreground of propagate, the one with which everything below the object is
	// deleted. A verdict of collect with a grace period of its own takes precedence.
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// InheritGracePeriod has Foreground of propagate use the grace period of the request to
	// delete the object, if that has one, in place of GracePeriodSeconds.
	InheritGracePeriod bool `json:"inheritGracePeriod,omitempty"`

	// Delay is the minimum time that the object must have been without an owner
	// before collect deletes it, counted from the request's OwnersAbsentSince. Collect
	// waits for the rest of it, and at least MinWait.
	Delay Duration `json:"delay,omitempty"`

	// After is the time until the next evaluation, at least MinWait. With Wait, the
	// default is DefaultWait. With Keep, it is a minute at first, and then grows up to an
	// hour; for images, it is ten minutes.
	After Duration `json:"after,omitempty"`

	// Dependents are exceptions to the decision of propagate, by kind.
	Dependents []DependentDecision `json:"dependents,omitempty"`

	// Order is the order in which Foreground of propagate deletes the dependents. Those of
	// one wave are deleted when none of the earlier waves is left, and those of kinds that
	// are in no wave come last. The object stays until all of them are gone.
	Order []Wave `json:"order,omitempty"`

	// Intents are the operations that Act requests, in this order.
	Intents []Intent `json:"intents,omitempty"`

	// State is any JSON value that the next request receives, with Act and Wait.
	// Without it, the previous state is kept.
	State json.RawMessage `json:"state,omitempty"`

	// Reason is an explanation for people, in records, status and messages of
	// denied requests.
	Reason string `json:"reason,omitempty"`
}

// WaitFor returns the duration of a Wait.
func (v Verdict) WaitFor() time.Duration {
	if v.After == 0 {
		return time.Duration(DefaultWait)
	}
	return time.Duration(max(v.After, MinWait))
}

// DependentDecision is the decision for the dependents of one kind: DecisionDelete
// or DecisionOrphan.
type DependentDecision struct {
	Group    string   `json:"group,omitempty"` // empty: the core group
	Kind     string   `json:"kind"`
	Decision Decision `json:"decision"`
}

// Wave has the kinds of dependents that are deleted at the same time.
type Wave []GroupKind

// GroupKind is a kind, without its version.
type GroupKind struct {
	Group string `json:"group,omitempty"` // empty: the core group
	Kind  string `json:"kind"`
}

// allowedFields lists the decisions of each hook, and the fields that are allowed with
// each, in addition to decision and reason.
var allowedFields = map[Hook][]decisionFields{
	HookPropagate: {
		{DecisionBackground, []string{"dependents"}},
		{DecisionForeground, []string{"dependents", "order", "gracePeriodSeconds", "inheritGracePeriod"}},
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
	HookProtect: {
		{DecisionAllow, nil},
		{DecisionDeny, nil},
		{DecisionAct, []string{"intents", "state"}},
		{DecisionAbstain, nil},
	},
	HookRetain: {
		{DecisionRemove, nil},
		{DecisionKeep, []string{"after"}},
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

type decisionFields struct {
	decision Decision
	fields   []string
}

// Decisions returns the decisions of a hook.
func Decisions(hook Hook) []Decision {
	var list []Decision
	for _, a := range allowedFields[hook] {
		list = append(list, a.decision)
	}
	return list
}

// Fields returns the fields of a verdict that are allowed with a decision of a
// hook, in addition to decision and reason.
func Fields(hook Hook, decision Decision) []string {
	for _, a := range allowedFields[hook] {
		if a.decision == decision {
			return append([]string(nil), a.fields...)
		}
	}
	return nil
}
