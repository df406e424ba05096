package gleaner

import (
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// The documents of package hostabi.
type (
	// Request is the input of one evaluation, for one object.
	Request = hostabi.Request
	// Hook is the situation in which a module is evaluated.
	Hook = hostabi.Hook
	// Policy is the resource that the module is evaluated for.
	Policy = hostabi.Policy
	// Object is a Kubernetes object.
	Object = hostabi.Object
	// Metadata is the metadata that every object has.
	Metadata = hostabi.Metadata
	// UserInfo is the user who requests a deletion.
	UserInfo = hostabi.UserInfo
	// Reference is an owner reference.
	Reference = hostabi.Reference
	// Owner is an owner reference with the status of its owner.
	Owner = hostabi.Owner
	// Dependents counts the objects that the object owns.
	Dependents = hostabi.Dependents
	// KindCount is the number of dependents of a kind.
	KindCount = hostabi.KindCount

	// Verdict is the output of an evaluation.
	Verdict = hostabi.Verdict
	// Decision is what a module decides.
	Decision = hostabi.Decision
	// Propagation is the propagation policy with which collect deletes an object.
	Propagation = hostabi.Propagation
	// DependentDecision is an exception for the dependents of one kind.
	DependentDecision = hostabi.DependentDecision
	// Wave has the kinds of dependents that are deleted at the same time.
	Wave = hostabi.Wave
	// GroupKind is a kind, without its version.
	GroupKind = hostabi.GroupKind
	// Duration is a length of time in a verdict; see [For].
	Duration = hostabi.Duration

	// Intent is an operation that the host carries out. One of its fields is set.
	Intent = hostabi.Intent
	// Target is the object that an intent refers to.
	Target = hostabi.Target
	// GetIntent gets an object.
	GetIntent = hostabi.GetIntent
	// ListIntent lists a page of objects of a kind.
	ListIntent = hostabi.ListIntent
	// CreateIntent creates an object.
	CreateIntent = hostabi.CreateIntent
	// DeleteIntent deletes the object with a UID.
	DeleteIntent = hostabi.DeleteIntent
	// PatchIntent patches an object.
	PatchIntent = hostabi.PatchIntent
	// HTTPIntent sends an HTTP request.
	HTTPIntent = hostabi.HTTPIntent
	// EventIntent records a Kubernetes event about the object.
	EventIntent = hostabi.EventIntent

	// Retention is a limit of a retention policy that removes an object.
	Retention = hostabi.Retention
	// Image is a container image on a node.
	Image = hostabi.Image
	// Workload is an object with a template of Pods.
	Workload = hostabi.Workload
	// Result is the result of an intent.
	Result = hostabi.Result
	// ListResult is a page of objects.
	ListResult = hostabi.ListResult
	// HTTPResult is the response to an HTTP request.
	HTTPResult = hostabi.HTTPResult
	// ResultError is the reason why an intent was not carried out.
	ResultError = hostabi.ResultError
	// ErrorReason is the reason of a ResultError.
	ErrorReason = hostabi.ErrorReason
)

// The hooks.
const (
	Propagate = hostabi.HookPropagate
	Collect   = hostabi.HookCollect
	Protect   = hostabi.HookProtect
	Retain    = hostabi.HookRetain
	Finalize  = hostabi.HookFinalize
	Validate  = hostabi.HookValidate
)

// The decisions, with their hooks.
const (
	Delete     = hostabi.DecisionDelete     // collect
	Orphan     = hostabi.DecisionOrphan     // collect, propagate
	Background = hostabi.DecisionBackground // propagate
	Foreground = hostabi.DecisionForeground // propagate
	Allow      = hostabi.DecisionAllow      // protect
	Deny       = hostabi.DecisionDeny       // protect
	Remove     = hostabi.DecisionRemove     // retain
	Keep       = hostabi.DecisionKeep       // retain
	Done       = hostabi.DecisionDone       // finalize
	Fail       = hostabi.DecisionFail       // finalize
	Act        = hostabi.DecisionAct        // finalize; propagate, collect, protect and retain, with reads
	Wait       = hostabi.DecisionWait       // propagate, collect, finalize
	Abstain    = hostabi.DecisionAbstain    // propagate, collect, protect, retain
	Valid      = hostabi.DecisionValid      // validate
	Invalid    = hostabi.DecisionInvalid    // validate
)

// The propagation policies of a delete.
const (
	PropagationBackground = hostabi.PropagationBackground
	PropagationForeground = hostabi.PropagationForeground
	PropagationOrphan     = hostabi.PropagationOrphan
)

// The statuses of owners. Never treat an Unknown owner as absent.
const (
	OwnerUnknown      = hostabi.OwnerUnknown
	OwnerPresent      = hostabi.OwnerPresent
	OwnerAbsent       = hostabi.OwnerAbsent
	OwnerWaiting      = hostabi.OwnerWaiting
	OwnerOrphaning    = hostabi.OwnerOrphaning
	OwnerUnresolvable = hostabi.OwnerUnresolvable
)

// The propagation policies that a client can request.
const (
	RequestedUnspecified = hostabi.RequestedUnspecified
	RequestedForeground  = hostabi.RequestedForeground
	RequestedOrphan      = hostabi.RequestedOrphan
)

// The types of patches and of events.
const (
	PatchMerge   = hostabi.PatchMerge
	PatchJSON    = hostabi.PatchJSON
	PatchApply   = hostabi.PatchApply
	EventNormal  = hostabi.EventNormal
	EventWarning = hostabi.EventWarning
)

// The reasons of errors.
const (
	ErrorNotGranted    = hostabi.ErrorNotGranted
	ErrorForbidden     = hostabi.ErrorForbidden
	ErrorNotFound      = hostabi.ErrorNotFound
	ErrorAlreadyExists = hostabi.ErrorAlreadyExists
	ErrorConflict      = hostabi.ErrorConflict
	ErrorExpired       = hostabi.ErrorExpired
	ErrorInvalid       = hostabi.ErrorInvalid
	ErrorUnavailable   = hostabi.ErrorUnavailable
)

// DurationOf returns a duration for a verdict: After: gleaner.For(10 * time.Minute).
func DurationOf(d time.Duration) Duration { return Duration(d) }

// ParseDuration parses a duration such as "1h30m", from settings. As in a verdict,
// it must be greater than 0 and at most 720h.
func ParseDuration(s string) (Duration, error) { return hostabi.ParseDuration(s) }
