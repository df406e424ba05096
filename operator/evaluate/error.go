package evaluate

import (
	"context"
	"errors"

	"github.com/gleaner-dev/gleaner/policies"
)

// errPoliciesUnknown means that policies are not loaded yet, so every object is kept.
var errPoliciesUnknown = errors.New("policies are not loaded yet")

// errTypeNotServed means that the object's type is not served now. Policies select resources, so
// it is unknown which of them govern the object, and it is kept.
var errTypeNotServed = errors.New("its type is not served, so it is unknown which policies govern it")

// errNotReady means that a policy cannot be evaluated.
var errNotReady = errors.New("policy is not ready")

// hostError is a host error, which is not the module's fault: a read failed, or a call was
// canceled. It is temporary, and the object is kept regardless of onFault, which is for
// faults of modules.
type hostError struct{ error }

// Unwrap returns the cause.
func (o hostError) Unwrap() error { return o.error }

// isCanceled reports whether a call ended because the caller's context did. A module that
// exceeds its own time limit is a Fault.
func isCanceled(err error) bool {
	return (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) && !errors.As(err, new(*policies.Fault))
}
