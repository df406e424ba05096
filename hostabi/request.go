package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Hook is a question that a policy can be asked.
type Hook string

// The hooks.
const (
	// HookPropagate is asked when an owner is being deleted and no client has
	// said what is to become of its dependents.
	HookPropagate Hook = "propagate"

	// HookCollect is asked when an object has lost its last owner.
	HookCollect Hook = "collect"

	// HookFinalize is asked when an object is being deleted that has the
	// module's finalizer.
	HookFinalize Hook = "finalize"

	// HookValidate is asked when settings for the module are applied. The
	// request then has no object.
	HookValidate Hook = "validate"
)

// Hooks are all hooks.
func Hooks() []Hook { return []Hook{HookPropagate, HookCollect, HookFinalize, HookValidate} }

// Standing is how an owner stands.
type Standing string

// The standings. The empty Standing means the same as StandingUnknown.
const (
	StandingUnknown      Standing = "Unknown" // it could not be read: never to be taken for absent
	StandingPresent      Standing = "Present"
	StandingAbsent       Standing = "Absent"
	StandingWaiting      Standing = "Waiting" // being deleted in the foreground
	StandingOrphaning    Standing = "Orphaning"
	StandingUnresolvable Standing = "Unresolvable"
)

// Requested is what a client asked to become of an owner's dependents.
type Requested string

// What can be asked for. No wish and Background look alike afterwards.
const (
	RequestedUnspecified Requested = "Unspecified"
	RequestedForeground  Requested = "Foreground"
	RequestedOrphan      Requested = "Orphan"
)

// Request is one question about one object. The same request gets the same
// verdict: whatever an answer may depend on is in it.
type Request struct {
	APIVersion string `json:"apiVersion"` // Version
	Hook       Hook   `json:"hook"`

	// Policy is the resource on whose behalf the question is put.
	Policy Policy `json:"policy"`

	// Object is what the question is about. HookValidate has none.
	Object Object `json:"object"`

	// Owners are the object's owner references, each with how its owner stands.
	Owners     []Owner    `json:"owners"`
	Dependents Dependents `json:"dependents"`

	// Requested is what the client that deleted the object asked for.
	Requested Requested `json:"requested,omitempty"`

	// OwnerlessSince is when the object was first seen to have no owner left.
	OwnerlessSince *time.Time `json:"ownerlessSince,omitempty"`

	// Time is the only clock there is.
	Time time.Time `json:"time"`

	// NamespaceTerminating tells that the object's namespace is being deleted,
	// in which nothing can be created any more.
	NamespaceTerminating bool `json:"namespaceTerminating"`

	// ServiceAccountMissing tells that the service account as which intents are
	// carried out does not exist, or not any more: they may all be Forbidden.
	ServiceAccountMissing bool `json:"serviceAccountMissing,omitempty"`

	// Deadline is until when a finalizer may keep the object. None: for ever.
	Deadline *time.Time `json:"deadline,omitempty"`

	// Attempt counts from 1 how often this question has been started on. It goes
	// up after a wait and after a failure, and Round starts again.
	Attempt int `json:"attempt"`

	// Round counts from 1 the answers within an attempt: it goes up each time
	// the answer was Act.
	Round int `json:"round"`

	// IdempotencyKey stays the same over all attempts and rounds of one question,
	// for systems that take such a key and so do nothing twice.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`

	// State is what the last verdict that had a state left to remember: any JSON
	// value. There is none at first.
	State json.RawMessage `json:"state,omitempty"`

	// Results has what came of the intents of all rounds of this attempt, by the
	// intent's id. An id that was used again has its last result.
	Results map[string]Result `json:"results"`

	// Withheld names what was left out of this request, since the policy says that it
	// does not need it (needs: Metadata or Reference): "object", for example.
	Withheld []string `json:"withheld"`
}

// Policy is the resource on whose behalf a question is put.
type Policy struct {
	Name      string          `json:"name"`
	Namespace string          `json:"namespace,omitempty"` // none: of the whole cluster
	Settings  json.RawMessage `json:"settings,omitempty"`  // a JSON object, as the resource has it
}

// Reference is an owner reference.
type Reference struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Controller         *bool  `json:"controller,omitempty"`
	BlockOwnerDeletion *bool  `json:"blockOwnerDeletion,omitempty"`
}

// Owner is one of the object's references with its owner's standing. The
// owner's body is never included.
type Owner struct {
	Reference Reference `json:"reference"`
	Standing  Standing  `json:"standing"`
}

// Dependents counts the objects that name the object as their owner.
type Dependents struct {
	Count  int         `json:"count"`
	ByKind []KindCount `json:"byKind"` // sorted by group and kind; may be left out where nobody asks for it
}

// KindCount is how many dependents are of a kind.
type KindCount struct {
	Group string `json:"group"` // empty: the core group
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// DecodeSettings reads the policy's settings. A setting that the type has no
// field for is an error; without settings nothing is read.
func (r Request) DecodeSettings(into any) error {
	if len(r.Policy.Settings) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(r.Policy.Settings))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("read the settings: %w", err)
	}
	return nil
}

// DecodeState reads what was left to remember, and tells whether there is
// anything.
func (r Request) DecodeState(into any) (bool, error) {
	if len(r.State) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(r.State, into); err != nil {
		return false, fmt.Errorf("read the state: %w", err)
	}
	return true, nil
}
