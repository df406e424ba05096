// Package builtin decides as the built-in garbage collector does. It is the default
// where no policy decides, and the oracle for tests of others.
package builtin

import (
	"context"
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// Policy is the built-in behavior. The zero Policy is ready to use.
type Policy struct{}

// Name implements policies.Evaluator.
func (Policy) Name() string { return "builtin" }

// Evaluate implements policies.Evaluator.
func (Policy) Evaluate(_ context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	switch r.Hook {
	case hostabi.HookCollect:
		return collect(r), nil
	case hostabi.HookPropagate:
		return propagate(r), nil
	case hostabi.HookProtect:
		return hostabi.Verdict{Decision: hostabi.DecisionAllow}, nil
	case hostabi.HookRetain:
		return hostabi.Verdict{Decision: hostabi.DecisionRemove}, nil
	default:
		return hostabi.Verdict{}, &policies.Fault{Policy: "builtin", Message: "it does not implement the hook " + string(r.Hook)}
	}
}

// collect deletes an object whose owners are all absent. It must not be called for
// other objects, and keeps them.
func collect(r hostabi.Request) hostabi.Verdict {
	waiting := false
	for _, owner := range r.Owners {
		switch owner.Status {
		case hostabi.OwnerAbsent:
		case hostabi.OwnerWaiting:
			waiting = true
		default:
			return hostabi.Verdict{Decision: hostabi.DecisionWait, Reason: "an owner is not known to be gone"}
		}
	}
	if len(r.Owners) == 0 {
		return hostabi.Verdict{Decision: hostabi.DecisionWait, Reason: "it never had an owner"}
	}
	return hostabi.Verdict{Decision: hostabi.DecisionDelete, Propagation: propagation(r, waiting)}
}

// propagation returns the propagation policy of the delete. An owner in foreground
// deletion waits for the object, and thereby for the object's dependents (G-48).
// Otherwise a finalizer that the object already has determines how its dependents
// are deleted (G-49).
func propagation(r hostabi.Request, waiting bool) hostabi.Propagation {
	finalizers := r.Object.Metadata.Finalizers
	switch {
	case waiting && r.Dependents.Count != 0:
		return hostabi.PropagationForeground
	case slices.Contains(finalizers, "orphan"):
		return hostabi.PropagationOrphan
	case slices.Contains(finalizers, "foregroundDeletion"):
		return hostabi.PropagationForeground
	default:
		return hostabi.PropagationBackground
	}
}

// propagate follows the client's propagation policy, and is Background otherwise
//
func propagate(r hostabi.Request) hostabi.Verdict {
	switch r.RequestedPropagation {
	case hostabi.RequestedForeground:
		return hostabi.Verdict{Decision: hostabi.DecisionForeground}
	case hostabi.RequestedOrphan:
		return hostabi.Verdict{Decision: hostabi.DecisionOrphan}
	default:
		return hostabi.Verdict{Decision: hostabi.DecisionBackground}
	}
}
