package hostabi

import "time"

// Hook is a question that a policy can be asked.
type Hook string

// The hooks.
const (
	// HookPropagate is asked when an owner is being deleted and no client has
	// said what is to become of its dependents.
	HookPropagate Hook = "propagate"

	// HookCollect is asked when an object has lost its last owner.
	HookCollect Hook = "collect"
)

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

// Request is one question about one object.
type Request struct {
	APIVersion string     `json:"apiVersion"`
	Hook       Hook       `json:"hook"`
	Object     Object     `json:"object"`
	Owners     []Owner    `json:"owners,omitempty"`
	Dependents Dependents `json:"dependents"`
	Requested  Requested  `json:"requested,omitempty"`

	// Time is the only clock there is.
	Time time.Time `json:"time"`
}

// Object is the object in question, as far as its metadata goes.
type Object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
}

// Metadata is what is known of an object's metadata without reading it.
type Metadata struct {
	Name            string      `json:"name"`
	Namespace       string      `json:"namespace,omitempty"`
	UID             string      `json:"uid"`
	ResourceVersion string      `json:"resourceVersion"`
	OwnerReferences []Reference `json:"ownerReferences,omitempty"`

	// Finalizers are those of garbage collection, orphan and
	// foregroundDeletion; others are not known here.
	Finalizers []string `json:"finalizers,omitempty"`
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
	Count int `json:"count"`
}
