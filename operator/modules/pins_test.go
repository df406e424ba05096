package modules

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/source"
)

const (
	keepText = "package gleaner\n\ncollect := {\"decision\": \"Orphan\"}\n"
	sendText = "package gleaner\n\nfinalize := {\"decision\": \"Done\"}\n"
)

func digestOf(text string) string { return source.Digest([]source.File{{Data: []byte(text)}}) }

func moduleOf(text string) *v1alpha1.ClusterPolicyModule {
	return &v1alpha1.ClusterPolicyModule{ObjectMeta: named("", "m"), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
}

// finalizing is a ClusterFinalizer that may send requests, unless it has no grants.
func finalizing(mode v1alpha1.Mode, digest string, grants *v1alpha1.FinalizerGrants) *v1alpha1.ClusterFinalizer {
	f := &v1alpha1.ClusterFinalizer{ObjectMeta: named("", "f"), Spec: v1alpha1.FinalizerSpec{
		Finalizer: "example.com/f", Resources: configMaps(), Mode: mode, Module: v1alpha1.ModuleReference{Name: "m", Digest: digest}, Grants: grants,
	}}
	if grants != nil {
		f.Spec.ServiceAccount = &v1alpha1.ServiceAccountReference{Namespace: "a", Name: "a"}
	}
	return f
}

func TestOnlyPinnedContentIsEvaluatedWithGrantsOrInEnforce(t *testing.T) {
	grants := &v1alpha1.FinalizerGrants{HTTP: []v1alpha1.HTTPGrant{{URL: "https://example.com/*", Methods: []v1alpha1.HTTPMethod{"GET"}}}}
	good, other := digestOf(sendText), digestOf(keepText)
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
			_, b := once(t, moduleOf(sendText), finalizing(c.mode, c.digest, c.grants))
			f := b.finalizers[0]
			if c.reason == "" {
				has(t, f.status.Conditions, v1alpha1.ConditionModuleReady, metav1.ConditionTrue, "Ready", "")
			} else {
				has(t, f.status.Conditions, v1alpha1.ConditionModuleReady, metav1.ConditionFalse, c.reason, c.write)
			}
			if ready := f.policy.Asker != nil; ready != (c.reason == "") {
				t.Errorf("it may be evaluated: %t", ready)
			}
		})
	}
}

// A module that says with other content that it has no hook collect would leave what a
// policy keeps to the next one.
func TestAPolicyWhoseModuleWasEditedKeepsWhatItGoverns(t *testing.T) {
	pinned := &v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "p"), Spec: v1alpha1.GCPolicySpec{
		Resources: configMaps(), Mode: v1alpha1.ModeEnforce, Module: &v1alpha1.ModuleReference{Name: "m", Digest: digestOf(keepText)},
	}}
	k, _ := once(t, moduleOf(keepText), pinned)
	if p := inForce(k.Policies())["p"]; p.Asker == nil {
		t.Fatalf("it is not ready: %s", p.NotReady)
	}
	text, edited := "package gleaner\n\npropagate := {\"decision\": \"Background\"}\n", &v1alpha1.ClusterPolicyModule{}
	if err := k.source.Get(t.Context(), client.ObjectKey{Name: "m"}, edited); err != nil {
		t.Fatal(err)
	}
	edited.Generation, edited.Spec.Rego.Inline = 2, &text
	if err := k.source.(client.Client).Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	b, err := k.settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k.describe(b, b.policies[0])
	has(t, b.policies[0].status.Conditions, v1alpha1.ConditionModuleReady, metav1.ConditionFalse, "DigestMismatch", "are kept")
	p := inForce(k.Policies())["p"]
	if p.Asker != nil || !p.Unsure || !slices.Contains(p.Hooks, hostabi.HookCollect) || !strings.Contains(p.NotReady, "module.digest is "+digestOf(keepText)) {
		t.Errorf("other content than what is pinned counts: %+v", p)
	}
}

func TestAPinIsNotAboutContentThatIsGiven(t *testing.T) {
	k := loading(t, keeper(t, func(o *Options) {
		o.Given = func(string) ([]source.File, bool) { return []source.File{{Data: []byte(sendText)}}, true }
	}, moduleOf(sendText+"\n# as it is in force\n"), finalizing(v1alpha1.ModeEnforce, digestOf("as it is in force"), nil)))
	b, err := k.settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p := b.finalizers[0].policy; p.Asker == nil {
		t.Errorf("a module that somebody tries out is not evaluated: %s", p.NotReady)
	}
}
