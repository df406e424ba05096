package modules

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies"
)

// assign gives the policy its module.
func (k *Keeper) assign(s *policyState, modules map[string]*moduleState, uses *modulestore.Uses) {
	m := s.module(*s.spec.Module, s.spec.Grants != nil, modules)
	if m == nil {
		return
	}
	c := m.compiled
	s.policy.Hooks = slices.DeleteFunc(slices.Clone(c.Hooks), func(h hostabi.Hook) bool {
		return h != hostabi.HookCollect && h != hostabi.HookPropagate
	})
	s.policy.Unsure = false
	for _, hook := range s.spec.Hooks {
		if !slices.Contains(c.Hooks, hostabi.Hook(hook)) {
			s.refuse(v1alpha1.ConditionModuleReady, "MissingHook", fmt.Sprintf(
				"%s does not answer %s: leave that out of hooks, or write a rule, or export a function, for it", m.name(), hook))
		}
	}
	s.policy.Hooks = s.wanted(s.policy.Hooks)
	if len(s.policy.Hooks) == 0 {
		s.refuse(v1alpha1.ConditionModuleReady, "MissingHook", fmt.Sprintf(
			"%s answers neither collect nor propagate: write a rule, or export a function, for what it is to decide", m.name()))
		return
	}
	if why := governable(s); why != "" {
		s.refuse(v1alpha1.ConditionAccepted, "NotGovernable", why)
		return
	}
	k.start(&s.asking, m, uses)
}

// module finds the module that a resource names; nil if it must not be evaluated, and then
// nothing of it counts, its hooks neither.
func (s *asking) module(ref v1alpha1.ModuleReference, grants bool, modules map[string]*moduleState) *moduleState {
	name := s.moduleName(ref)
	s.policy.Module = name
	m, ok := modules[name]
	switch {
	case !ok:
		s.refuse(v1alpha1.ConditionModuleReady, "NotFound", fmt.Sprintf("there is no %s: apply it, or name another in module", name))
		return nil
	case !m.loading.IsZero():
		s.wait(m.loading, fmt.Sprintf("%s: %s", name, m.problem.message))
		return nil
	case m.compiled == nil:
		s.hostError = m.hostError
		s.refuse(v1alpha1.ConditionModuleReady, m.problem.reason, fmt.Sprintf("%s: %s", name, m.problem.message))
		return nil
	}
	s.engine, s.policy.Digest = m.compiled.Engine, m.compiled.Digest
	if m.given {
		return m
	}
	if wrong := pinOf(ref, s.policy.Enforce, grants).check(name, m.compiled.Digest); wrong.is() {
		s.refuse(wrong.condition, wrong.reason, wrong.message)
		return nil
	}
	return m
}

// start has the module started for the resource, and its settings validated.
func (k *Keeper) start(s *asking, m *moduleState, uses *modulestore.Uses) {
	state := uses.Get(modulestore.Use{
		UID: s.object.GetUID(), Policy: s.policy.String(), Module: *m.compiled, Limits: limitsOf(m.spec.Limits),
		Settings: hostabi.Policy{Name: s.key.Name, Namespace: s.key.Namespace, Settings: s.policy.Settings},
	})
	switch {
	case state.Phase == modulestore.Ready:
		s.policy.Asker = state.Evaluator
	case state.Phase == modulestore.Failed:
		s.notStarted(m, state)
	case state.Step == modulestore.Validating:
		s.wait(state.Since, fmt.Sprintf("%s: its settings are being validated", m.name()))
	default:
		s.wait(state.Since, fmt.Sprintf("%s: it is being started", m.name()))
	}
}

// notStarted says why the module could not be started for the resource.
func (s *asking) notStarted(m *moduleState, state modulestore.UseState) {
	fault, settings := (*policies.Fault)(nil), (*modulestore.SettingsError)(nil)
	s.hostError = !errors.As(state.Err, &settings) && !errors.As(state.Err, &fault)
	switch {
	case settings != nil:
		s.refuse(v1alpha1.ConditionAccepted, "SettingsRefused", "the module refuses settings: "+settings.Reason)
	case state.Step == modulestore.Validating:
		s.refuse(v1alpha1.ConditionModuleReady, "ValidateFailed", "whether its settings are good could not be asked: "+state.Err.Error())
	case fault != nil:
		s.refuse(v1alpha1.ConditionModuleReady, string(fault.Kind), fmt.Sprintf("%s: %s", m.name(), fault.Message))
	default:
		s.refuse(v1alpha1.ConditionModuleReady, "NotStarted", fmt.Sprintf("%s: %s", m.name(), state.Err))
	}
}

func limitsOf(l *v1alpha1.Limits) (limits modulestore.Limits) {
	if l == nil {
		return limits
	}
	if l.Fuel != nil {
		limits.Fuel = *l.Fuel
	}
	if l.Timeout != nil {
		limits.Timeout = l.Timeout.Duration
	}
	if l.Memory != nil {
		limits.Memory = l.Memory.Value()
	}
	return limits
}

// wanted are those of some hooks that the policy has asked.
func (s *policyState) wanted(hooks []hostabi.Hook) []hostabi.Hook {
	if len(s.spec.Hooks) == 0 {
		return hooks
	}
	return slices.DeleteFunc(slices.Clone(hooks), func(h hostabi.Hook) bool {
		return !slices.Contains(s.spec.Hooks, v1alpha1.PolicyHook(h))
	})
}

// moduleName names a module as a resource refers to it.
func (s *asking) moduleName(ref v1alpha1.ModuleReference) string {
	key := types.NamespacedName{Name: ref.Name}
	kind := ref.Kind
	if kind == "" {
		kind = map[bool]string{true: "ClusterPolicyModule", false: "PolicyModule"}[s.key.Namespace == ""]
	}
	if kind == "PolicyModule" {
		key.Namespace = s.key.Namespace
	}
	return kind + " " + nameOf(key)
}

// governable says why a policy may not govern what its rules select, now that the
// hooks of its module are known.
func governable(s *policyState) string {
	if !s.policy.Answers(hostabi.HookPropagate) {
		return ""
	}
	for _, rule := range s.policy.Rules {
		for _, group := range rule.Groups {
			for _, resource := range rule.Resources {
				if group == policies.All || resource == policies.All || untouchable(schema.GroupResource{Group: group, Resource: resource}) {
					return fmt.Sprintf("its module answers propagate, which needs every object to be written ahead of time, and so can't govern %s: "+
						"name other resources, or a module without propagate", schema.GroupResource{Group: group, Resource: resource})
				}
			}
		}
	}
	return ""
}

// untouchable are resources whose objects are not written ahead of time: there
// are too many, or a hold on them would stop the cluster.
func untouchable(r schema.GroupResource) bool {
	switch r.Group {
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", v1alpha1.GroupVersion.Group, "events.k8s.io":
		return true
	}
	return slices.Contains([]schema.GroupResource{
		{Resource: "pods"}, {Resource: "nodes"}, {Resource: "events"}, {Resource: "endpoints"}, {Resource: "namespaces"},
		{Group: "coordination.k8s.io", Resource: "leases"}, {Group: "discovery.k8s.io", Resource: "endpointslices"},
	}, r)
}
