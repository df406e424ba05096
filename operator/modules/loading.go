package modules

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

// reasonLoading is why something is not ready that is being fetched, compiled or started.
// That is no failure: what it governs is kept meanwhile, whatever onFault says.
const reasonLoading = "Loading"

// loadingGrace is how long something may be loading before its status says so. What takes
// no longer is not worth two writes.
const loadingGrace = time.Second

// modules tells the store which modules there are, and takes their states as they are
// right now, by name.
func (k *Keeper) modules(b *build) map[string]*moduleState {
	named, modules := map[types.NamespacedName]struct{}{}, map[string]*moduleState{}
	for _, m := range b.modules {
		m.problem = k.excluded(m)
	}
	beyond := k.ledger.set(b.modules)
	resources := make([]modulestore.Resource, 0, len(b.modules))
	for _, m := range b.modules {
		if why, is := beyond[m.object.GetUID()]; is {
			m.problem = problem{v1alpha1.ConditionFetched, reasonQuota, why.message}
		}
		r := m.resource()
		if key, ok := r.ConfigMap(); ok {
			named[key] = struct{}{}
		}
		if !m.problem.is() {
			resources = append(resources, r)
		}
	}
	k.named.Store(&named) // before they are fetched: no change may be missed after that
	k.store.SetModules(resources)
	for _, m := range b.modules {
		if !m.problem.is() {
			m.take(k.store)
		}
		if k.options.Given != nil {
			_, m.given = k.options.Given(m.name())
		}
		modules[m.name()] = m
	}
	return modules
}

// resource is the module as the store knows it.
func (m *moduleState) resource() modulestore.Resource {
	return modulestore.Resource{
		Ref: m.ref(), UID: m.object.GetUID(), Generation: m.object.GetGeneration(), Terminating: m.object.GetDeletionTimestamp() != nil, Spec: m.spec,
	}
}

// take takes a module's state from the store. With sha256 its content can't be another
// than before, wherever it comes from now.
func (m *moduleState) take(store *modulestore.Store) {
	state, _ := store.Get(m.ref(), m.spec.SHA256)
	switch state.Phase {
	case modulestore.Ready:
		m.compiled, m.pinned = &state.Module, state.Module.Pinned
		if state.Err != nil {
			m.problem = notFetched(state.Err)
			m.problem.message += "; until it can be fetched again, the module that was fetched before is evaluated"
		}
	case modulestore.Failed:
		m.problem, m.hostError = failed(state), ofHost(state.Err)
	default:
		m.loading = state.Since
		m.problem = problem{v1alpha1.ConditionFetched, "Loading", "it is being fetched"}
		if state.Step == modulestore.Compiling {
			m.problem = problem{v1alpha1.ConditionCompiled, "Loading", "it is being compiled"}
		}
	}
}

// ofHost reports whether a module could not be loaded for a reason that is neither its own
// nor its source's, such as a worker process that can't be started.
func ofHost(err error) bool {
	return !errors.As(err, new(*source.Error)) && !errors.As(err, new(*modulestore.CompileError))
}

// failed is the problem of a module that Failed.
func failed(state modulestore.State) problem {
	blamed := (*modulestore.CompileError)(nil)
	switch {
	case state.Step == modulestore.Fetching:
		return notFetched(state.Err)
	case errors.As(state.Err, &blamed):
		return problem{v1alpha1.ConditionCompiled, "DoesNotCompile", blamed.Message}
	default:
		return problem{v1alpha1.ConditionCompiled, "NotCompiled", state.Err.Error()}
	}
}

// notFetched is the problem of a module that could not be fetched.
func notFetched(err error) problem {
	if fault := (*source.Error)(nil); errors.As(err, &fault) {
		return problem{v1alpha1.ConditionFetched, string(fault.Reason), egress.Cause(err)}
	}
	return problem{v1alpha1.ConditionFetched, "Failed", egress.Cause(err)}
}

// sameEvaluated reports whether two builds of the same resources evaluate the same.
func sameEvaluated(a, b *build) bool {
	return slices.EqualFunc(a.policies, b.policies, func(a, b *policyState) bool {
		p, q := a.policy, b.policy
		same := p.Asker == q.Asker || p.Module == "" && a.problem == b.problem // fixed verdicts
		return same && p.NotReady == q.NotReady && p.OnFault == q.OnFault && p.Digest == q.Digest &&
			p.Unsure == q.Unsure && slices.Equal(p.Hooks, q.Hooks)
	}) && slices.EqualFunc(a.finalizers, b.finalizers, func(a, b *finalizerState) bool { return a.finalizer.Same(b.finalizer) })
}

// loading reports whether anything in a build is still loading, as far as is known.
func (b *build) loading() bool {
	return b.loadingFor(func(time.Time) bool { return true })
}

// loadingFor reports whether anything has been loading since some time that a function
// chooses.
func (b *build) loadingFor(chosen func(since time.Time) bool) bool {
	is := func(since time.Time) bool { return !since.IsZero() && chosen(since) }
	return slices.ContainsFunc(b.modules, func(m *moduleState) bool { return is(m.loading) }) ||
		slices.ContainsFunc(b.policies, func(p *policyState) bool { return is(p.loading) }) ||
		slices.ContainsFunc(b.finalizers, func(f *finalizerState) bool { return is(f.loading) })
}

// brief reports whether something has not been loading for long enough to say so.
func brief(since time.Time) bool { return !since.IsZero() && time.Since(since) < loadingGrace }
