package policyset

import (
	"errors"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

// setState sets what the module store says of the module. One that the store does not
// know is loading.
func (m *Module) setState(state modulestore.State, _ bool) {
	switch state.Phase {
	case modulestore.Ready:
		m.Content, m.Pinned = &state.Module, state.Module.Pinned
		if state.Err != nil {
			m.Problem = notFetched(state.Err)
			m.Problem.Message += "; until it can be fetched again, the module that was fetched before is evaluated"
		}
	case modulestore.Failed:
		m.Problem, m.HostError = failed(state), isHostError(state.Err)
	default:
		m.Loading = state.Since
		m.Problem = Problem{v1alpha1.ConditionFetched, ReasonLoading, "it is being fetched"}
		if state.Step == modulestore.Compiling {
			m.Problem = Problem{v1alpha1.ConditionCompiled, ReasonLoading, "it is being compiled"}
		}
	}
}

// isHostError reports whether a module could not be loaded for a reason that is neither
// its own nor its source's, such as a worker process that can't be started.
func isHostError(err error) bool {
	return !errors.As(err, new(*source.Error)) && !errors.As(err, new(*modulestore.CompileError)) &&
		!errors.As(err, new(*modulestore.ExclusionError))
}

// failed returns the problem of a module that Failed.
func failed(state modulestore.State) Problem {
	invalid := (*modulestore.CompileError)(nil)
	switch {
	case state.Step == modulestore.Fetching:
		return notFetched(state.Err)
	case errors.As(state.Err, &invalid):
		return Problem{v1alpha1.ConditionCompiled, "DoesNotCompile", invalid.Message}
	default:
		return Problem{v1alpha1.ConditionCompiled, "NotCompiled", state.Err.Error()}
	}
}

// notFetched returns the problem of a module that was not fetched.
func notFetched(err error) Problem {
	if excluded := (*modulestore.ExclusionError)(nil); errors.As(err, &excluded) {
		if excluded.Reason == modulestore.ReasonTenantModulesDisabled {
			return Problem{v1alpha1.ConditionFetched, modulestore.ReasonTenantModulesDisabled, excluded.Message}
		}
		return Problem{v1alpha1.ConditionFetched, modulestore.ReasonQuotaExceeded, excluded.Message}
	}
	if fault := (*source.Error)(nil); errors.As(err, &fault) {
		return Problem{v1alpha1.ConditionFetched, string(fault.Reason), egress.RedactAddresses(err)}
	}
	return Problem{v1alpha1.ConditionFetched, "Failed", egress.RedactAddresses(err)}
}
