package companion

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// newCompanion is one that has a certificate, of an operator in gleaner-system.
func newCompanion() *Companion {
	e := webhook.Endpoint{Identity: &latest.Value[webhook.Identity]{}}
	e.Identity.Store(webhook.Identity{CABundle: []byte("CA"), Secret: "secret"})
	return New(Options{
		Objects: admission.NewObjects(nil, "gleaner-system"), Endpoint: e, Collector: Collector{User: "collector"},
		KindOf: func(r schema.GroupResource) (schema.GroupKind, bool) {
			return schema.GroupKind{Group: r.Group, Kind: strings.ToUpper(r.Resource)}, true
		},
	})
}

// vetoesOf returns the webhooks that resources require.
func vetoesOf(t *testing.T, resources ...client.Object) []admissionv1.ValidatingWebhook {
	t.Helper()
	return newCompanion().vetoes(policysettest.Settled(t, resources...))
}

func overriding(namespaces *metav1.LabelSelector, resource string) v1alpha1.GCPolicySpec {
	return v1alpha1.GCPolicySpec{
		Resources:         []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{resource}}},
		NamespaceSelector: namespaces, Mode: v1alpha1.ModeEnforce, ExplicitPropagation: v1alpha1.ExplicitPropagationOverride,
		Fixed: &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Background"}},
	}
}

// The API server takes the configuration as a whole, so what is wrong with one policy
// must not be in there: with it, no other one would be heard of.
func TestVetoes_HaveNoInvalidSelector(t *testing.T) {
	for claim, bad := range map[string]*metav1.LabelSelector{
		"a label that can't be":          {MatchLabels: map[string]string{"no label!": "a"}},
		"a value that can't be":          {MatchLabels: map[string]string{"app": "no value!"}},
		"a value of an expression":       {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "In", Values: []string{"no value!"}}}},
		"an operator that there is none": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Equals", Values: []string{"a"}}}},
	} {
		t.Run(claim, func(t *testing.T) {
			for _, w := range vetoesOf(t, &v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("shop", "p"), Spec: policysettest.Keeping(bad, policysettest.ConfigMaps()...)}) {
				for _, s := range []*metav1.LabelSelector{w.ObjectSelector, w.NamespaceSelector} {
					if errs := validation.ValidateLabelSelector(s, validation.LabelSelectorValidationOptions{}, field.NewPath("selector")); len(errs) != 0 {
						t.Errorf("the API server would refuse all of it: %v", errs)
					}
				}
				if !slices.ContainsFunc(w.NamespaceSelector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return slices.Equal(r.Values, []string{"shop"}) }) {
					t.Errorf("it is not about the policy's namespace alone: %v", w.NamespaceSelector)
				}
			}
		})
	}
}

// etcd takes 1.5 MiB.
func TestVetoes_OfLargePoliciesFitIntoAConfiguration(t *testing.T) {
	names := func(n, length int, of string) []string {
		list := make([]string, n)
		for i := range list {
			text := fmt.Sprint(of, i)
			list[i] = text + strings.Repeat("x", length-len(text))
		}
		return list
	}
	var all []client.Object
	for i := range maxVetoes {
		rules := make([]v1alpha1.ResourceRule, 3)
		for j := range rules {
			rules[j] = v1alpha1.ResourceRule{APIGroups: names(32, 253, "g"), Resources: names(64, 253, "r")}
		}
		selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: names(100, 63, "v")},
		}}
		name := fmt.Sprint("p", i)
		all = append(all, &v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta(name, name), Spec: policysettest.Keeping(selector, rules...)})
	}
	webhooks := vetoesOf(t, all...)
	if n := size(webhooks); n > 1<<20 {
		t.Errorf("%d bytes", n)
	}
	if len(webhooks) != maxVetoes {
		t.Fatalf("%d webhooks", len(webhooks))
	}
	for _, w := range webhooks {
		if r := w.Rules; len(r) != 1 || r[0].Resources[0] != "*" || *r[0].Scope != admissionv1.NamespacedScope || len(w.ObjectSelector.MatchExpressions) != 0 {
			t.Fatalf("it does not ask about all that might be meant: %+v", w)
		}
	}
}

// What is in no namespace passes any selector of namespaces.
func TestVetoes_OfANamespacedPolicyAreNotForClusterScopedObjects(t *testing.T) {
	for claim, spec := range map[string]v1alpha1.GCPolicySpec{
		"by what it collects":  policysettest.Keeping(nil, v1alpha1.ResourceRule{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}}),
		"by what it overrides": overriding(nil, "persistentvolumes"),
	} {
		t.Run(claim, func(t *testing.T) {
			p := &v1alpha1.GCPolicy{ObjectMeta: policysettest.Meta("shop", "p"), Spec: spec}
			rules := vetoesOf(t, p)[0].Rules
			if s := policysettest.Settled(t, p).Policies[0]; Refuses(s) {
				for _, r := range newCompanion().refusal(s, "gleaner").MatchConstraints.ResourceRules {
					rules = append(rules, r.RuleWithOperations)
				}
			}
			for _, r := range rules {
				if *r.Scope != admissionv1.NamespacedScope {
					t.Errorf("it is about what is in no namespace: %+v", r)
				}
			}
		})
	}
}

func TestVetoes_CoverDependentsOfClusterScopedObjectsInAllNamespaces(t *testing.T) {
	but := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "stage", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"trial"}},
	}}
	webhooks := vetoesOf(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: overriding(but, "persistentvolumes")})
	selected, err := metav1.LabelSelectorAsSelector(webhooks[0].NamespaceSelector)
	if err != nil {
		t.Fatal(err)
	}
	if !selected.Matches(labels.Set{"kubernetes.io/metadata.name": "shop", "stage": "trial"}) {
		t.Errorf("nobody is asked in a namespace that the policy selects not, about dependents of what it governs: %v", selected)
	}
}

// Whether it overrides is not known while its module is not there, and then its objects
// are held: so are the dependents.
func TestVetoes_CoverDependentsWhileAPolicyIsNotReady(t *testing.T) {
	p := policysettest.ModulePolicy("p", "missing", v1alpha1.OnFaultHold)
	p.Spec.ExplicitPropagation = v1alpha1.ExplicitPropagationOverride
	if !slices.ContainsFunc(vetoesOf(t, p), func(w admissionv1.ValidatingWebhook) bool {
		return slices.ContainsFunc(w.MatchConditions, func(c admissionv1.MatchCondition) bool { return c.Name == dependsOnGoverned })
	}) {
		t.Error("nobody is asked about dependents of what it governs")
	}
}

// onFault is about modules that fail, and not about an operator that can't start worker
// processes.
func TestVetoes_FailClosedOnAHostErrorWhateverOnFaultSays(t *testing.T) {
	f := policysettest.New(t, func(o *policysettest.Options) { o.Loader.Sandbox.Command = []string{"/nonexistent"} },
		policysettest.Module("m", policysettest.KeepText), policysettest.ModulePolicy("p", "m", v1alpha1.OnFaultDefault))
	if w := newCompanion().vetoes(f.Settle()); len(w) != 1 || *w[0].FailurePolicy != admissionv1.Fail {
		t.Errorf("deletes go ahead while the webhook does not answer: %+v", w)
	}
}
