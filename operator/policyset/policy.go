package policyset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

// buildPolicy sets the policy of a resource. Whatever is wrong with the resource, the
// policy governs what it names, and is not ready.
func (b *Builder) buildPolicy(s *Policy, modules map[string]*Module, states ModuleStates) {
	p := &policies.Policy{
		Namespace: s.Key.Namespace, Name: s.Key.Name, Generation: s.Object.GetGeneration(),
		Needs:   policies.Needs(s.Spec.Needs),
		Enforce: s.Spec.Mode == v1alpha1.ModeEnforce,
		OnFault: policies.OnFault(s.Spec.OnFault), OverrideExplicit: s.Spec.ExplicitPropagation == v1alpha1.ExplicitPropagationOverride,
		Priority: s.Spec.Priority, Overridable: s.Spec.Overridable,
		Hooks: []hostabi.Hook{hostabi.HookCollect, hostabi.HookPropagate, hostabi.HookRetain}, HooksUnknown: true,
	}
	s.Policy = p
	p.Hooks = s.enabled(p.Hooks)
	if slices.Contains(s.Spec.Hooks, v1alpha1.PolicyHook(hostabi.HookProtect)) && s.mayProtect() {
		p.Hooks = append(p.Hooks, hostabi.HookProtect)
	}
	if s.Spec.Settings != nil {
		p.Settings = s.Spec.Settings.Raw
	}
	p.ServiceAccount = s.account(s.Spec.ServiceAccount)
	if s.Spec.Grants != nil {
		p.ReadRules = s.reads(s.Spec.Grants.Read)
	}
	switch {
	case !b.compileSelection(&s.Declaration):
	case s.Spec.Fixed != nil:
		s.setFixed()
	case s.Spec.Module != nil:
		s.setModule(modules, states)
	default:
		s.refuse(v1alpha1.ConditionAccepted, "Invalid", "write exactly one of fixed and module")
	}
	if !s.Problem.IsZero() {
		p.Evaluator, p.NotReadyReason = nil, s.Problem.Message
	}
	p.Loading = !s.Loading.IsZero()
	if p.Loading || s.HostError {
		p.OnFault = policies.OnFaultHold // onFault is about modules that fail, not about loading or the host
	}
}

// setModule has the policy evaluate its module.
func (p *Policy) setModule(modules map[string]*Module, states ModuleStates) {
	m := p.module(*p.Spec.Module, p.Spec.Grants != nil, modules)
	if m == nil {
		return
	}
	c := m.Content
	p.Policy.Hooks = slices.DeleteFunc(slices.Clone(c.Hooks), func(h hostabi.Hook) bool {
		return h != hostabi.HookCollect && h != hostabi.HookPropagate && h != hostabi.HookRetain && (h != hostabi.HookProtect || !p.mayProtect())
	})
	p.Policy.HooksUnknown, p.Policy.Needs = false, policies.LeastNeeds(p.Policy.Needs, c.Needs)
	for _, hook := range p.Spec.Hooks {
		if !slices.Contains(c.Hooks, hostabi.Hook(hook)) {
			p.refuse(v1alpha1.ConditionModuleReady, ReasonMissingHook, fmt.Sprintf(
				"%s does not answer %s: remove that from hooks, or write a rule, or export a function, for it", m, hook))
		}
	}
	p.Policy.Hooks = p.enabled(p.Policy.Hooks)
	if len(p.Policy.Hooks) == 0 {
		p.refuse(v1alpha1.ConditionModuleReady, ReasonMissingHook, fmt.Sprintf(
			"%s answers none of collect, propagate, protect and retain: write a rule, or export a function, for what it is to decide", m))
		return
	}
	if why := p.notGovernable(); why != "" {
		p.refuse(v1alpha1.ConditionAccepted, "NotGovernable", why)
		return
	}
	p.start(m, states)
}

// mayProtect reports whether the policy may deny requests to delete objects. Authors of GCPolicies may not
// change the admission of anything.
func (p *Policy) mayProtect() bool { return p.Key.Namespace == "" }

// notProtectable returns why the policy may not protect what its rules select, now that its hooks are known; "" if it may.
func (p *Policy) notProtectable() string {
	names := func(r policies.Rule) bool { return slices.Contains(r.Groups, v1alpha1.GroupVersion.Group) }
	if p.Policy.HasHook(hostabi.HookProtect) && slices.ContainsFunc(p.Policy.Rules, names) {
		return "protect can't govern the group " + v1alpha1.GroupVersion.Group + ", because its objects must remain deletable: remove that group, or remove protect"
	}
	return ""
}

// notGovernable returns why the policy may not govern what its rules select, now that the
// hooks of its module are known; "" if it may.
func (p *Policy) notGovernable() string {
	if why := p.notProtectable(); why != "" {
		return why
	}
	if !p.Policy.HasHook(hostabi.HookPropagate) {
		return ""
	}
	for _, rule := range p.Policy.Rules {
		for _, group := range rule.Groups {
			for _, resource := range rule.Resources {
				if group == policies.Wildcard || resource == policies.Wildcard || neverHeld(schema.GroupResource{Group: group, Resource: resource}) {
					return fmt.Sprintf("its module answers propagate, which requires a finalizer on every object, and so can't govern %s: "+
						"name other resources, or a module without propagate", schema.GroupResource{Group: group, Resource: resource})
				}
			}
		}
	}
	return ""
}

// neverHeld reports whether objects of a resource never get a hold: there are too many,
// or a hold on them would stop the cluster.
func neverHeld(r schema.GroupResource) bool {
	switch r.Group {
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", v1alpha1.GroupVersion.Group, "events.k8s.io":
		return true
	}
	return slices.Contains([]schema.GroupResource{
		{Resource: "pods"}, {Resource: "nodes"}, {Resource: "events"}, {Resource: "endpoints"}, {Resource: "namespaces"},
		{Group: "coordination.k8s.io", Resource: "leases"}, {Group: "discovery.k8s.io", Resource: "endpointslices"},
	}, r)
}

// setFixed gives the policy its fixed verdicts.
func (p *Policy) setFixed() {
	p.Engine, p.Policy.Needs = v1alpha1.EngineFixed, policies.NeedsReference // or less
	verdicts := map[hostabi.Hook][]byte{}
	for hook, v := range p.fixedVerdicts() {
		data, err := json.Marshal(v)
		if err != nil {
			p.refuse(v1alpha1.ConditionAccepted, "Invalid", "fixed: "+err.Error())
			return
		}
		verdicts[hook] = data
	}
	evaluator, err := fixed.New(p.Policy.String(), verdicts)
	if err != nil {
		p.refuse(v1alpha1.ConditionAccepted, "Invalid", "fixed: "+err.Error())
		return
	}
	p.Policy.Hooks, p.Policy.HooksUnknown = slices.Sorted(maps.Keys(verdicts)), false
	p.Policy.Evaluator = fixedEvaluator{evaluator}
	if why := p.notProtectable(); why != "" {
		p.refuse(v1alpha1.ConditionAccepted, "NotGovernable", why)
	}
}

// fixedVerdicts returns the verdicts of a fixed policy.
func (p *Policy) fixedVerdicts() map[hostabi.Hook]any {
	verdicts := map[hostabi.Hook]any{}
	if v := p.Spec.Fixed.Collect; v != nil {
		verdicts[hostabi.HookCollect] = v
	}
	if v := p.Spec.Fixed.Propagate; v != nil {
		verdicts[hostabi.HookPropagate] = v
	}
	if v := p.Spec.Fixed.Protect; v != nil && p.mayProtect() {
		verdicts[hostabi.HookProtect] = v
	}
	if v := p.Spec.Fixed.Retain; v != nil {
		verdicts[hostabi.HookRetain] = v
	}
	return verdicts
}

// fixedEvaluator returns fixed verdicts the way modules return theirs.
type fixedEvaluator struct{ *fixed.Policy }

// EvaluateMetered implements policies.Evaluator.
func (e fixedEvaluator) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	verdict, err := e.Evaluate(ctx, r)
	return policies.Evaluation{Verdict: verdict}, err
}
