// Package builtin answers as Kubernetes does today: it is the default where no
// policy speaks, and the oracle that others are tested against.
package builtin

import (
	"context"
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// Policy is the built-in behaviour. The zero Policy is ready to use.
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
	default:
		return hostabi.Verdict{}, &policies.Fault{Policy: "builtin", Message: "it knows no hook " + string(r.Hook)}
	}
}

// collect deletes an object all of whose owners are lost. It is to be asked
// about no other, and keeps any other.
func collect(r hostabi.Request) hostabi.Verdict {
	waiting := false
	for _, owner := range r.Owners {
		switch owner.Standing {
		case hostabi.StandingAbsent:
		case hostabi.StandingWaiting:
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

// propagation is what the collector deletes with. An owner in foreground
// deletion is waiting for the object, and so for what the object has below it
// (G-48). Otherwise a finalizer put on the object beforehand governs its own
// subtree (G-49).
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

// propagate does as the client asked, and Background otherwise.
func propagate(r hostabi.Request) hostabi.Verdict {
	switch r.Requested {
	case hostabi.RequestedForeground:
		return hostabi.Verdict{Decision: hostabi.DecisionForeground}
	case hostabi.RequestedOrphan:
		return hostabi.Verdict{Decision: hostabi.DecisionOrphan}
	default:
		return hostabi.Verdict{Decision: hostabi.DecisionBackground}
	}
}
