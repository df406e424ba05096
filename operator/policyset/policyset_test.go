package policyset_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source"
)

func hasProblem(t *testing.T, p policyset.Problem, condition, reason, text string) {
	t.Helper()
	if p.Condition != condition || p.Reason != reason || !strings.Contains(p.Message, text) {
		t.Errorf("got %+v, want %s, %s, and a message with %q", p, condition, reason, text)
	}
}

func TestSelection_NeedsAServiceAccountForConditions(t *testing.T) {
	const fix = "write serviceAccount: {name: …}"
	s := policysettest.Settled(t,
		&v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("shop", "p"), Spec: policysettest.Orphaning(nil)},
		&v1alpha1.Finalizer{ObjectMeta: policysettest.Meta("shop", "f"), Spec: v1alpha1.FinalizerSpec{
			Resources: policysettest.ConfigMaps(), MatchConditions: policysettest.Orphaning(nil).MatchConditions, Mode: v1alpha1.ModeEnforce,
		}},
	)
	hasProblem(t, s.Policies[0].Problem, v1alpha1.ConditionAccepted, "Invalid", fix)
	hasProblem(t, s.Finalizers[0].Problem, v1alpha1.ConditionAccepted, "Invalid", fix)
	if p := s.Policies[0].Policy; p.Evaluator != nil || !strings.Contains(p.NotReadyReason, fix) {
		t.Errorf("it is evaluated, or does not say why not: %q", p.NotReadyReason)
	}
}

func TestSelection_ConditionsAreAcceptedWithAServiceAccount(t *testing.T) {
	s := policysettest.Settled(t,
		&v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("shop", "p"), Spec: policysettest.Orphaning(&v1alpha1.ServiceAccountReference{Name: "reader"})},
		&v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "c"), Spec: policysettest.Orphaning(nil)}, // read as the operator
	)
	for _, p := range s.Policies {
		if !p.Problem.IsZero() || p.Policy.Evaluator == nil {
			t.Errorf("%s: %+v", p.Policy, p.Problem)
		}
	}
}

// A foreground deletion adds a finalizer to the resource, so that it is seen terminating
// although Gleaner does not keep it.
func TestFinalizer_OneThatWasNeverInForceReleasesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		mode       v1alpha1.Mode
		finalizers []string
		releases   bool
	}{
		"always in Monitor": {v1alpha1.ModeMonitor, []string{metav1.FinalizerDeleteDependents}, false},
		"in Enforce":        {v1alpha1.ModeEnforce, []string{metav1.FinalizerDeleteDependents}, true},
		"in Enforce before": {v1alpha1.ModeMonitor, []string{v1alpha1.InUseFinalizer}, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.Now()
			f := &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f", DeletionTimestamp: &now, Finalizers: c.finalizers}}
			f.Spec.Finalizer, f.Spec.Mode, f.Spec.OnRemoval = "example.com/f", c.mode, v1alpha1.RemovalRelease
			f.Spec.Resources = policysettest.ConfigMaps()
			list := policysettest.Settled(t, f).Serving()
			if len(list) != 1 || list[0].ReleaseOnRemoval != c.releases || !list[0].Deleting {
				t.Errorf("got %+v", list)
			}
		})
	}
}

func TestFinalizer_NamesItsModuleEvenIfItsSelectionIsInvalid(t *testing.T) {
	f := &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f"}}
	f.Spec.Finalizer, f.Spec.Mode, f.Spec.Module.Name = "example.com/f", v1alpha1.ModeEnforce, "m"
	f.Spec.Resources = policysettest.ConfigMaps()
	f.Spec.MatchConditions = []v1alpha1.MatchCondition{{Name: "wrong", Expression: "!"}}
	list := policysettest.Settled(t, f).Serving()
	if len(list) != 1 || list[0].Module != "ClusterPolicyModule m" {
		t.Errorf("got %+v", list)
	}
}

func TestFinalizer_IsAttachedOnceItsResourceIsInUse(t *testing.T) {
	for _, inUse := range []bool{false, true} {
		f := &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f"}}
		f.Spec.Finalizer, f.Spec.Mode, f.Spec.Attach = "example.com/f", v1alpha1.ModeEnforce, true
		f.Spec.Resources = policysettest.ConfigMaps()
		if inUse {
			f.Finalizers = []string{v1alpha1.InUseFinalizer}
		}
		if list := policysettest.Settled(t, f).Serving(); len(list) != 1 || list[0].Attach != inUse {
			t.Errorf("in use: %t, got %+v", inUse, list)
		}
	}
}

// finalizing is a ClusterFinalizer that may send requests, unless it has no grants.
func finalizing(mode v1alpha1.Mode, digest string, grants *v1alpha1.FinalizerGrants) *v1alpha1.ClusterFinalizer {
	f := &v1alpha1.ClusterFinalizer{ObjectMeta: policysettest.Meta("", "f"), Spec: v1alpha1.FinalizerSpec{
		Finalizer: "example.com/f", Resources: policysettest.ConfigMaps(), Mode: mode, Module: v1alpha1.ModuleReference{Name: "m", Digest: digest}, Grants: grants,
	}}
	if grants != nil {
		f.Spec.ServiceAccount = &v1alpha1.ServiceAccountReference{Namespace: "a", Name: "a"}
	}
	return f
}

func TestPin_IsRequiredWithGrantsOrInEnforce(t *testing.T) {
	grants := &v1alpha1.FinalizerGrants{HTTP: []v1alpha1.HTTPGrant{{URL: "https://example.com/*", Methods: []v1alpha1.HTTPMethod{"GET"}}}}
	good, other := policysettest.Digest(policysettest.FinalizeText), policysettest.Digest(policysettest.KeepText)
	for claim, c := range map[string]struct {
		mode   v1alpha1.Mode
		digest string
		grants *v1alpha1.FinalizerGrants
		reason string // empty: it is ready
		write  string
	}{
		"Enforce, pinned":                {v1alpha1.ModeEnforce, good, grants, "", ""},
		"Enforce, not pinned":            {v1alpha1.ModeEnforce, "", nil, "ModuleNotPinned", "mode is Enforce: review it, then write module.digest: " + good},
		"Enforce, pinned to another":     {v1alpha1.ModeEnforce, other, nil, "DigestMismatch", "write module.digest: " + good},
		"Monitor, grants, pinned":        {v1alpha1.ModeMonitor, good, grants, "", ""},
		"Monitor, grants, not pinned":    {v1alpha1.ModeMonitor, "", grants, "ModuleNotPinned", "there are grants: review it, then write module.digest: " + good},
		"Monitor, no grants":             {v1alpha1.ModeMonitor, "", nil, "", ""},
		"Monitor, pinned to another one": {v1alpha1.ModeMonitor, other, nil, "DigestMismatch", "write module.digest: " + good},
		"no mode, grants, not pinned":    {"", "", grants, "ModuleNotPinned", "write module.digest: " + good},
	} {
		t.Run(claim, func(t *testing.T) {
			f := policysettest.Settled(t, policysettest.Module("m", policysettest.FinalizeText), finalizing(c.mode, c.digest, c.grants)).Finalizers[0]
			if c.reason != "" {
				hasProblem(t, f.Problem, v1alpha1.ConditionModuleReady, c.reason, c.write)
			}
			if ready := f.Policy.Evaluator != nil; ready != (c.reason == "") {
				t.Errorf("it may be evaluated: %t, %+v", ready, f.Problem)
			}
		})
	}
}

// If a module says with other content that it has no hook collect, the next policy would
// decide about what the first one keeps.
func TestPin_APolicyWhoseModuleWasEditedKeepsWhatItGoverns(t *testing.T) {
	f := policysettest.New(t, nil, policysettest.Module("m", policysettest.KeepText), policysettest.ModulePolicy("p", "m", v1alpha1.OnFaultHold))
	if p := policysettest.PolicyOf(f.Settle(), "p").Policy; p.Evaluator == nil {
		t.Fatalf("it is not ready: %s", p.NotReadyReason)
	}
	text, edited := "package gleaner\n\npropagate := {\"decision\": \"Background\"}\n", &v1alpha1.ClusterPolicyModule{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: "m"}, edited); err != nil {
		t.Fatal(err)
	}
	edited.Spec.Rego.Inline = &text
	f.Update(edited)
	s := policysettest.PolicyOf(f.Settle(), "p")
	hasProblem(t, s.Problem, v1alpha1.ConditionModuleReady, "DigestMismatch", "module.digest is "+policysettest.Digest(policysettest.KeepText))
	if p := s.Policy; p.Evaluator != nil || !p.HooksUnknown || !slices.Contains(p.Hooks, hostabi.HookCollect) {
		t.Errorf("other content than what is pinned counts: %+v", p)
	}
}

func TestNeeds_AreTheLeastOfTheSpecAndTheModule(t *testing.T) {
	const labels = "package gleaner\n\ncollect := {\"decision\": \"Orphan\"} if input.object.metadata.labels.keep\n"
	for text, wants := range map[string]map[v1alpha1.Need]policies.Needs{
		policysettest.KeepText: {"": policies.NeedsReference, v1alpha1.NeedObject: policies.NeedsReference, v1alpha1.NeedReference: policies.NeedsReference},
		labels:                 {"": policies.NeedsMetadata, v1alpha1.NeedObject: policies.NeedsMetadata, v1alpha1.NeedReference: policies.NeedsReference},
	} {
		for written, want := range wants {
			p := policysettest.ModulePolicy("p", "m", v1alpha1.OnFaultHold)
			p.Spec.Needs, p.Spec.Module.Digest = written, policysettest.Digest(text)
			f := policysettest.New(t, nil, policysettest.Module("m", text), p)
			if got := policysettest.PolicyOf(f.Settle(), "p").Policy.Needs; got != want {
				t.Errorf("needs %q in the policy: it needs %s, want %s, for\n%s", written, got, want, text)
			}
		}
	}
}

func TestPin_DoesNotApplyToContentThatIsOverridden(t *testing.T) {
	f := policysettest.New(t, func(o *policysettest.Options) {
		o.Loader.Override = func(string) ([]source.File, bool) {
			return []source.File{{Data: []byte(policysettest.FinalizeText)}}, true
		}
		o.Rules.Overridden = func(string) bool { return true }
	}, policysettest.Module("m", policysettest.FinalizeText+"\n# as it is in force\n"), finalizing(v1alpha1.ModeEnforce, policysettest.Digest("as it is in force"), nil))
	if p := f.Settle().Finalizers[0].Policy; p.Evaluator == nil {
		t.Errorf("a module that somebody tries out is not evaluated: %s", p.NotReadyReason)
	}
}

// onFault is about modules that fail, and not about an operator that can't start worker
// processes.
func TestHostError_KeepsObjectsWhateverOnFaultSays(t *testing.T) {
	f := policysettest.New(t, func(o *policysettest.Options) { o.Loader.Sandbox.Command = []string{"/nonexistent"} }, policysettest.Module("m", policysettest.KeepText), policysettest.ModulePolicy("p", "m", v1alpha1.OnFaultDefault))
	p := policysettest.PolicyOf(f.Settle(), "p")
	if p.Policy.Evaluator != nil || p.Policy.OnFault != policies.OnFaultHold || p.Policy.Loading || !p.HostError {
		t.Errorf("the policy is %+v", p.Policy)
	}
	hasProblem(t, p.Problem, v1alpha1.ConditionModuleReady, "NotCompiled", "")
}

func TestTenantModules_AreNotUsedWhereTheyAreDisabled(t *testing.T) {
	text := policysettest.KeepText
	tenant := &v1alpha1.PolicyModule{ObjectMeta: policysettest.Meta("a", "m"), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
	policy := func(name string, module *v1alpha1.ModuleReference) *v1alpha1.GCPolicy {
		return &v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("a", name), Spec: v1alpha1.GCPolicySpec{Resources: policysettest.ConfigMaps(), Mode: v1alpha1.ModeEnforce, Module: module}}
	}
	fixed := &v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("a", "fixed"), Spec: policysettest.Keeping(nil, policysettest.ConfigMaps()...)}
	s := policysettest.New(t, func(o *policysettest.Options) { o.Loader.DisableTenantModules = true }, tenant, policysettest.Module("m", policysettest.KeepText), fixed,
		policy("own", &v1alpha1.ModuleReference{Name: "m", Digest: policysettest.Digest(policysettest.KeepText)}),
		policy("cluster", &v1alpha1.ModuleReference{Kind: "ClusterPolicyModule", Name: "m", Digest: policysettest.Digest(policysettest.KeepText)})).Settle()
	for _, p := range s.Policies {
		if ready := p.Policy.Evaluator != nil; ready != (p.Key.Name != "own") {
			t.Errorf("%s is ready: %t, %s", p.Key, ready, p.Policy.NotReadyReason)
		}
	}
	hasProblem(t, policysettest.PolicyOf(s, "own").Problem, v1alpha1.ConditionModuleReady, "TenantModulesDisabled", "use a ClusterPolicyModule")
}

// Namespaced selectors that the API server would reject must not reach it: with them it
// would reject those of all other policies.
func TestSelection_AnInvalidSelectorSelectsEverything(t *testing.T) {
	for claim, bad := range map[string]*metav1.LabelSelector{
		"a label that can't be":          {MatchLabels: map[string]string{"no label!": "a"}},
		"a value that can't be":          {MatchLabels: map[string]string{"app": "no value!"}},
		"a value of an expression":       {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"no value!"}}}},
		"an operator that there is none": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Equals", Values: []string{"a"}}}},
	} {
		t.Run(claim, func(t *testing.T) {
			p := policysettest.Settled(t, &v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("shop", "p"), Spec: policysettest.Keeping(bad, policysettest.ConfigMaps()...)}).Policies[0]
			if p.ObjectSelector != nil || p.Policy.ObjectSelector != nil || p.Policy.Evaluator != nil {
				t.Errorf("got %+v", p)
			}
			hasProblem(t, p.Problem, v1alpha1.ConditionAccepted, "Invalid", "objectSelector can't be read")
		})
	}
}
