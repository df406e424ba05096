package gleaner

import (
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// The documents, as package hostabi has them.
type (
	// Request is one question about one object.
	Request = hostabi.Request
	// Hook is a question that a module can be asked.
	Hook = hostabi.Hook
	// Policy is the resource on whose behalf a question is put.
	Policy = hostabi.Policy
	// Object is a Kubernetes object.
	Object = hostabi.Object
	// Metadata is what every object has.
	Metadata = hostabi.Metadata
	// Reference is an owner reference.
	Reference = hostabi.Reference
	// Owner is an owner reference, with how the owner stands.
	Owner = hostabi.Owner
	// Dependents counts the objects that the object owns.
	Dependents = hostabi.Dependents
	// KindCount is how many of them are of a kind.
	KindCount = hostabi.KindCount

	// Verdict is an answer.
	Verdict = hostabi.Verdict
	// Decision is what was decided.
	Decision = hostabi.Decision
	// Propagation is what becomes of the dependents of an object that collect
	// deletes.
	Propagation = hostabi.Propagation
	// DependentDecision is an exception for the dependents of one kind.
	DependentDecision = hostabi.DependentDecision
	// Duration is a length of time in a verdict; see [For].
	Duration = hostabi.Duration

	// Intent is something that is asked of the host. One of its fields is set.
	Intent = hostabi.Intent
	// Target names the object that an intent is about.
	Target = hostabi.Target
	// GetIntent reads an object.
	GetIntent = hostabi.GetIntent
	// ListIntent reads a page of objects of a kind.
	ListIntent = hostabi.ListIntent
	// CreateIntent creates an object.
	CreateIntent = hostabi.CreateIntent
	// DeleteIntent deletes the object of a UID.
	DeleteIntent = hostabi.DeleteIntent
	// PatchIntent changes an object.
	PatchIntent = hostabi.PatchIntent
	// HTTPIntent sends an HTTP request.
	HTTPIntent = hostabi.HTTPIntent
	// EventIntent tells of something.
	EventIntent = hostabi.EventIntent

	// Result is what came of an intent.
	Result = hostabi.Result
	// ListResult is a page of objects.
	ListResult = hostabi.ListResult
	// HTTPResult is the response to an HTTP request.
	HTTPResult = hostabi.HTTPResult
	// ResultError is why an intent was not carried out.
	ResultError = hostabi.ResultError
	// ErrorReason is what kind of error that is.
	ErrorReason = hostabi.ErrorReason
)

// The hooks.
const (
	Propagate = hostabi.HookPropagate
	Collect   = hostabi.HookCollect
	Finalize  = hostabi.HookFinalize
	Validate  = hostabi.HookValidate
)

// The decisions, with the hooks that they answer.
const (
	Delete     = hostabi.DecisionDelete     // collect
	Orphan     = hostabi.DecisionOrphan     // collect, propagate
	Background = hostabi.DecisionBackground // propagate
	Foreground = hostabi.DecisionForeground // propagate
	Done       = hostabi.DecisionDone       // finalize
	Fail       = hostabi.DecisionFail       // finalize
	Act        = hostabi.DecisionAct        // finalize; propagate and collect, with reads
	Wait       = hostabi.DecisionWait       // propagate, collect, finalize
	Abstain    = hostabi.DecisionAbstain    // propagate, collect
	Valid      = hostabi.DecisionValid      // validate
	Invalid    = hostabi.DecisionInvalid    // validate
)

// The propagation of a delete.
const (
	PropagationBackground = hostabi.PropagationBackground
	PropagationForeground = hostabi.PropagationForeground
	PropagationOrphan     = hostabi.PropagationOrphan
)

// How owners stand. One that is Unknown is never to be taken for absent.
const (
	StandingUnknown      = hostabi.StandingUnknown
	StandingPresent      = hostabi.StandingPresent
	StandingAbsent       = hostabi.StandingAbsent
	StandingWaiting      = hostabi.StandingWaiting
	StandingOrphaning    = hostabi.StandingOrphaning
	StandingUnresolvable = hostabi.StandingUnresolvable
)

// What a client asked to become of an owner's dependents.
const (
	RequestedUnspecified = hostabi.RequestedUnspecified
	RequestedForeground  = hostabi.RequestedForeground
	RequestedOrphan      = hostabi.RequestedOrphan
)

// Types of patches and of events.
const (
	PatchMerge   = hostabi.PatchMerge
	PatchJSON    = hostabi.PatchJSON
	PatchApply   = hostabi.PatchApply
	EventNormal  = hostabi.EventNormal
	EventWarning = hostabi.EventWarning
)

// Why an intent was not carried out.
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

// For is a duration in a verdict: After: gleaner.For(10 * time.Minute).
func For(d time.Duration) Duration { return Duration(d) }

// ParseDuration reads a duration such as "1h30m", from settings, as a verdict
// may have it: above 0, and at most 720h.
func ParseDuration(s string) (Duration, error) { return hostabi.ParseDuration(s) }
