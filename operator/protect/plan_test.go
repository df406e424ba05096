package protect

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
)

const protectText = "package gleaner\n\nprotect := {\"decision\": \"Abstain\"}\n"

// policy returns a ClusterGCPolicy in Enforce mode for ConfigMaps.
func policy(name string, change func(*v1alpha1.GCPolicySpec)) *v1alpha1.ClusterGCPolicy {
	p := &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", name)}
	p.Spec = v1alpha1.GCPolicySpec{
		Resources: []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}}}, Mode: v1alpha1.ModeEnforce,
	}
	change(&p.Spec)
	return p
}

func deny(s *v1alpha1.GCPolicySpec) {
	s.Fixed = &v1alpha1.FixedVerdicts{Protect: &v1alpha1.ProtectVerdict{Decision: v1alpha1.ProtectDeny, Reason: "ask"}}
}

func decide(d v1alpha1.ProtectDecision) func(*v1alpha1.GCPolicySpec) {
	return func(s *v1alpha1.GCPolicySpec) { deny(s); s.Fixed.Protect.Decision = d }
}

func byModule(s *v1alpha1.GCPolicySpec) { s.Module = &v1alpha1.ModuleReference{Name: "m"} }

// with applies several changes.
func with(all ...func(*v1alpha1.GCPolicySpec)) func(*v1alpha1.GCPolicySpec) {
	return func(s *v1alpha1.GCPolicySpec) {
		for _, change := range all {
			change(s)
		}
	}
}

func first(s *v1alpha1.GCPolicySpec) { s.Priority = 1 }

func namesOf(all []*policyset.Policy) []string {
	var names []string
	for _, p := range all {
		names = append(names, p.Key.Name)
	}
	slices.Sort(names)
	return names
}

func TestPlan_AModuleThatMayPrecedeMovesAFixedPolicyToTheWebhook(t *testing.T) {
	monitor := func(s *v1alpha1.GCPolicySpec) { s.Mode = v1alpha1.ModeMonitor }
	secrets := func(s *v1alpha1.GCPolicySpec) { s.Resources[0].Resources = []string{"secrets"} }
	labeled := func(value string) func(*v1alpha1.GCPolicySpec) {
		return func(s *v1alpha1.GCPolicySpec) {
			s.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": value}}
		}
	}
	for claim, c := range map[string]struct {
		fixed, module func(*v1alpha1.GCPolicySpec)
		moved         bool
	}{
		"it precedes":                   {deny, with(byModule, first), true},
		"it follows":                    {with(deny, first), byModule, false},
		"it is in Monitor mode":         {deny, with(byModule, first, monitor), false},
		"the fixed one is in Monitor":   {with(deny, monitor), with(byModule, first), false},
		"it is about another resource":  {deny, with(byModule, first, secrets), false},
		"it is about other objects":     {with(deny, labeled("b")), with(byModule, first, labeled("c")), false},
		"it may be about the same ones": {with(deny, labeled("b")), with(byModule, first, labeled("b")), true},
		"by name, at the same priority": {with(deny, func(s *v1alpha1.GCPolicySpec) { s.Resources[0].Resources = []string{"*"} }), byModule, true},
	} {
		t.Run(claim, func(t *testing.T) {
			m := policysettest.Module("m", protectText)
			module := policy("module", c.module)
			if module.Spec.Mode == v1alpha1.ModeEnforce {
				module.Spec.Module.Digest = policysettest.Digest(protectText)
			}
			plan := PlanOf(policysettest.New(t, nil, m, module, policy("fixed", c.fixed)).Settle())
			moved := slices.Contains(namesOf(plan.Webhooks), "fixed")
			if moved != c.moved || moved == slices.Contains(namesOf(plan.Policies), "fixed") || !slices.Contains(namesOf(plan.Webhooks), "module") {
				t.Errorf("policies %v, webhooks %v", namesOf(plan.Policies), namesOf(plan.Webhooks))
			}
		})
	}
}

func TestPlan_WhatIsNotKnownIsRetained(t *testing.T) {
	missing := policy("missing", func(s *v1alpha1.GCPolicySpec) {
		byModule(s)
		s.Module.Digest = strings.Repeat("0", 64)
	})
	broken := policy("broken", func(s *v1alpha1.GCPolicySpec) {
		deny(s)
		s.MatchConditions = []v1alpha1.MatchCondition{{Name: "a", Expression: "object."}}
	})
	unselectable := policy("unselectable", func(s *v1alpha1.GCPolicySpec) {
		byModule(s)
		s.Hooks = []v1alpha1.PolicyHook{"protect"}
		s.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"no label!": ""}}
	})
	namespaced := &v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("shop", "deny"), Spec: policy("", deny).Spec}
	collecting := policy("collect", func(s *v1alpha1.GCPolicySpec) {
		s.Fixed = &v1alpha1.FixedVerdicts{Collect: &v1alpha1.FixedVerdict{Decision: "Orphan"}}
	})
	plan := PlanOf(policysettest.New(t, nil, missing, broken, unselectable, namespaced, collecting, policy("allow", decide(v1alpha1.ProtectAllow))).Settle())
	if len(plan.Policies)+len(plan.Webhooks) != 0 {
		t.Errorf("policies %v, webhooks %v", namesOf(plan.Policies), namesOf(plan.Webhooks))
	}
	if got := sortedKeys(plan.Retained); !slices.Equal(got, []string{"gleaner-protect-broken", "gleaner-protect-missing", "gleaner-protect-unselectable"}) {
		t.Errorf("retained %v", got)
	}
	for _, p := range plan.Retained {
		if failurePolicy(p) != admissionv1.Fail {
			t.Errorf("%s has failurePolicy %s", p.Policy, failurePolicy(p))
		}
	}
}

// A module that has to answer protect holds what it governs until it can.
func TestPlan_AnExplicitHookIsInstalledBeforeItsModuleIsReady(t *testing.T) {
	missing := policy("missing", func(s *v1alpha1.GCPolicySpec) {
		byModule(s)
		s.Module.Digest, s.Hooks = strings.Repeat("0", 64), []v1alpha1.PolicyHook{"protect"}
	})
	plan := PlanOf(policysettest.New(t, nil, missing).Settle())
	if got := namesOf(plan.Webhooks); !slices.Equal(got, []string{"missing"}) || len(plan.Retained) != 0 {
		t.Errorf("webhooks %v, retained %v", got, plan.Retained)
	}
	if failurePolicy(plan.Webhooks[0]) != admissionv1.Fail {
		t.Error("it fails open")
	}
}

func TestName_OfALongNameIsHashed(t *testing.T) {
	long := &policyset.Policy{}
	long.Key.Name = strings.Repeat("a", 253)
	if name := Name(long); len(name) > 253 || !strings.HasPrefix(name, namePrefix+".") {
		t.Error(name)
	}
}

func TestRules_NameTheVersionOfEachResource(t *testing.T) {
	p := policy("p", func(s *v1alpha1.GCPolicySpec) {
		deny(s)
		s.Resources = []v1alpha1.ResourceRule{
			{APIGroups: []string{"autoscaling", "apps"}, Resources: []string{"horizontalpodautoscalers", "deployments"}},
			{APIGroups: []string{""}, Resources: []string{"*"}},
		}
	})
	plan := PlanOf(policysettest.New(t, nil, p).Settle())
	got := map[string]string{}
	for _, r := range rules(plan.Policies[0], func(r schema.GroupResource) string {
		return map[string]string{"horizontalpodautoscalers.autoscaling": "v2", "deployments.apps": "v1"}[r.String()]
	}) {
		for _, resource := range r.Resources {
			got[resource+"."+r.APIGroups[0]] = r.APIVersions[0]
		}
	}
	want := map[string]string{
		"horizontalpodautoscalers.autoscaling": "v2", "deployments.autoscaling": "*", "deployments.apps": "v1", "horizontalpodautoscalers.apps": "*", "*.": "*",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
