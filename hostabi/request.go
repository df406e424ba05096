package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Hook is the situation in which a module is evaluated.
type Hook string

// The hooks.
const (
	// HookPropagate is evaluated when an owner is being deleted, and the client's
	// propagation policy is neither Foreground nor Orphan.
	HookPropagate Hook = "propagate"

	// HookCollect is evaluated when an object has lost its last owner.
	HookCollect Hook = "collect"

	// HookProtect is evaluated when a user requests the deletion of an object,
	// before anything is changed. The object has no deletionTimestamp.
	HookProtect Hook = "protect"

	// HookRetain is evaluated when a limit of a retention policy removes an object,
	// right before it is removed.
	HookRetain Hook = "retain"

	// HookFinalize is evaluated when an object that has the module's finalizer is
	// being deleted.
	HookFinalize Hook = "finalize"

	// HookValidate is evaluated when settings for the module are applied. The
	// request has no object.
	HookValidate Hook = "validate"
)

// Hooks returns all hooks.
func Hooks() []Hook {
	return []Hook{HookPropagate, HookCollect, HookProtect, HookRetain, HookFinalize, HookValidate}
}

// OwnerStatus is the status of an owner.
type OwnerStatus string

// The statuses. The empty OwnerStatus means OwnerUnknown.
const (
	OwnerUnknown      OwnerStatus = "Unknown" // could not be read; never treat it as absent
	OwnerPresent      OwnerStatus = "Present"
	OwnerAbsent       OwnerStatus = "Absent"
	OwnerWaiting      OwnerStatus = "Waiting" // being deleted in the foreground
	OwnerOrphaning    OwnerStatus = "Orphaning"
	OwnerUnresolvable OwnerStatus = "Unresolvable"
)

// RequestedPropagation is the propagation policy that a client requested for an owner's
// dependents.
type RequestedPropagation string

// The propagation policies. Background and no propagation policy cannot be told
// apart afterwards.
const (
	RequestedUnspecified RequestedPropagation = "Unspecified"
	RequestedForeground  RequestedPropagation = "Foreground"
	RequestedOrphan      RequestedPropagation = "Orphan"
)

// Request is the input of one evaluation, for one object. The verdict depends on
// nothing else: the same request gives the same verdict.
type Request struct {
	APIVersion string `json:"apiVersion"` // Version
	Hook       Hook   `json:"hook"`

	// Policy is the resource that the module is evaluated for.
	Policy Policy `json:"policy"`

	// Object is the object that the evaluation is about. HookValidate has none.
	Object Object `json:"object"`

	// Owners are the object's owner references, each with the status of its owner.
	Owners     []Owner    `json:"owners"`
	Dependents Dependents `json:"dependents"`

	// RequestedPropagation is the propagation policy that the client requested when it deleted
	// the object.
	RequestedPropagation RequestedPropagation `json:"requestedPropagation,omitempty"`

	// UserInfo is the user who requests the deletion. With HookProtect only.
	UserInfo *UserInfo `json:"userInfo,omitempty"`

	// Retention says which limit removes the object. With HookRetain only.
	Retention *Retention `json:"retention,omitempty"`

	// Image is the container image that a NodeRetentionPolicy removes from the object,
	// which is the Node. With HookRetain only.
	Image *Image `json:"image,omitempty"`

	// OwnersAbsentSince is when the object was first observed without an owner.
	OwnersAbsentSince *time.Time `json:"ownersAbsentSince,omitempty"`

	// Time is the time of the evaluation. A module has no other clock.
	Time time.Time `json:"time"`

	// NamespaceTerminating reports whether the object's namespace is being deleted.
	// Nothing can be created in it.
	NamespaceTerminating bool `json:"namespaceTerminating"`

	// ServiceAccountMissing reports whether the service account that carries out
	// intents does not exist. All intents may then be Forbidden.
	ServiceAccountMissing bool `json:"serviceAccountMissing,omitempty"`

	// Deadline is the time until which a finalizer may keep the object. Nil: no
	// limit.
	Deadline *time.Time `json:"deadline,omitempty"`

	// Attempt is the number of the attempt, starting at 1. It increases after a
	// wait and after a failure, and Round then starts at 1 again.
	Attempt int `json:"attempt"`

	// Round is the number of the evaluation within an attempt, starting at 1. It
	// increases after each verdict with Act.
	Round int `json:"round"`

	// IdempotencyKey is the same in all attempts and rounds for an object, for
	// systems that deduplicate requests by such a key.
	IdempotencyKey string `json:"idempotencyKey,omitempty"`

	// State is the state of the last verdict that had one: any JSON value. It is
	// empty at first.
	State json.RawMessage `json:"state,omitempty"`

	// Results are the results of the intents of all rounds of this attempt, by the
	// intent's id. If an id was used again, it is the last result.
	Results map[string]Result `json:"results"`

	// Withheld lists the fields that this request lacks because of needs or missing
	// permissions, such as "object".
	Withheld []string `json:"withheld"`
}

// Policy is the resource that a module is evaluated for: a policy or a finalizer.
type Policy struct {
	Name      string          `json:"name"`
	Namespace string          `json:"namespace,omitempty"` // empty: a cluster-scoped resource
	Settings  json.RawMessage `json:"settings,omitempty"`  // a JSON object, as in the resource
}

// UserInfo is a user, as the API server has authenticated it.
type UserInfo struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// Retention is a limit of a retention policy that removes an object.
type Retention struct {
	Policy    string `json:"policy"`              // name of the retention policy
	Namespace string `json:"namespace,omitempty"` // of the retention policy; empty: it is cluster-scoped

	// Limit is the limit, as in the status of retention policies: KeepLast, MaxTotal,
	// MaxAge, Expired, MaxUnused or Usage.
	Limit string `json:"limit"`
}

// Image is a container image on a node.
type Image struct {
	ID        string            `json:"id"`
	Names     []string          `json:"names"`              // by tag and by digest
	Labels    map[string]string `json:"labels,omitempty"`   // in the configuration of the image
	SizeBytes int64             `json:"sizeBytes"`          // as the container runtime reports it
	FirstSeen time.Time         `json:"firstSeen"`          // on the node
	LastUsed  *time.Time        `json:"lastUsed,omitempty"` // nil: it was never seen in use

	// Workloads have the image in the template of their Pods, anywhere in the cluster. At most
	// MaxWorkloads.
	Workloads []Workload `json:"workloads"`
}

// Workload is an object with a template of Pods, such as a Deployment or a CronJob.
type Workload struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
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

// Owner is an owner reference with the status of its owner. It does not include the
// owner itself.
type Owner struct {
	Reference Reference   `json:"reference"`
	Status    OwnerStatus `json:"status"`
}

// Dependents counts the objects that refer to the object as their owner.
type Dependents struct {
	Count  int         `json:"count"`
	ByKind []KindCount `json:"byKind"` // sorted by group and kind; empty if it is not needed
}

// KindCount is the number of dependents of a kind.
type KindCount struct {
	Group string `json:"group"` // empty: the core group
	Kind  string `json:"kind"`
	Count int    `json:"count"`
}

// DecodeSettings decodes the policy's settings. Unknown fields are an error. If
// there are no settings, into is unchanged.
func (r Request) DecodeSettings(into any) error {
	if len(r.Policy.Settings) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(r.Policy.Settings))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("decode settings: %w", err)
	}
	return nil
}

// DecodeState decodes the state, and reports whether there is one.
func (r Request) DecodeState(into any) (bool, error) {
	if len(r.State) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(r.State, into); err != nil {
		return false, fmt.Errorf("decode state: %w", err)
	}
	return true, nil
}
