package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/test/pins"
)

// Labels by which policies select objects.
const (
	collectLabel   = "soak.gleaner.dev/collect"   // verdict of the module of policy collect
	propagateLabel = "soak.gleaner.dev/propagate" // orphan
	finalizeLabel  = "soak.gleaner.dev/finalize"  // by the site

	keep, wait, undefined, endless = "keep", "wait", "undefined", "endless"
)

// collectModule is a module that keeps, waits, and has two faults: no verdict, and
// an endless loop.
const collectModule = `package gleaner

mode := input.object.metadata.labels["` + collectLabel + `"]

collect := {"decision": "Orphan"} if mode == "keep"
else := {"decision": "Wait", "after": "500ms"} if {
	mode == "wait"
	input.attempt == 1
}
else := {"decision": "Delete"} if mode == "wait"
else := {"decision": "Delete"} if {
	mode == "endless"
	count([1 | some i in numbers.range(1, 100000); some j in numbers.range(1, 100000); i == j]) > 0
}
# generation %d
`

const finalizeModule = `package gleaner

url := sprintf("%s/%s", [input.policy.settings.url, input.object.metadata.name])

finalize := {"decision": "Done"} if input.results.gone.http.status == 200
else := {"decision": "Wait", "after": "200ms"} if input.results.gone
else := {"decision": "Act", "intents": [{"id": "gone", "http": {"method": "DELETE", "url": url}}]}
`

func module(name, text string) *v1alpha1.ClusterPolicyModule {
	m := &v1alpha1.ClusterPolicyModule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Spec.Rego = &v1alpha1.RegoSource{Inline: &text}
	return m
}

func policy(name string, resources []string, label string, values ...string) *v1alpha1.ClusterGCPolicy {
	p := &v1alpha1.ClusterGCPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Resources = []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: resources}}
	p.Spec.Mode = v1alpha1.ModeEnforce
	p.Spec.ObjectSelector = selector(label, values...)
	return p
}

func selector(label string, values ...string) *metav1.LabelSelector {
	operator := metav1.LabelSelectorOpIn
	if len(values) == 0 {
		operator = metav1.LabelSelectorOpExists
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: operator, Values: values}}}
}

// collectPolicy returns the policy that uses the module.
func collectPolicy() *v1alpha1.ClusterGCPolicy {
	p := policy("collect", []string{"configmaps", "secrets"}, collectLabel)
	p.Spec.Module = &v1alpha1.ModuleReference{Name: "collecting", Digest: pins.Of(fmt.Sprintf(collectModule, 0))}
	return p
}

func propagatePolicy() *v1alpha1.ClusterGCPolicy {
	p := policy("propagate", []string{"configmaps"}, propagateLabel)
	p.Spec.Fixed = &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Orphan"}}
	return p
}

// finalizer returns a ClusterFinalizer whose module sends a request to the site.
func (s *testbed) finalizer(account *corev1.ServiceAccount) (*v1alpha1.ClusterFinalizer, error) {
	settings, err := json.Marshal(map[string]string{"url": s.site.server.URL})
	if err != nil {
		return nil, err
	}
	f := &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "site"}}
	f.Spec.Finalizer = "soak.example.com/site"
	f.Spec.Resources = []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}}}
	f.Spec.ObjectSelector = selector(finalizeLabel)
	f.Spec.Module = v1alpha1.ModuleReference{Name: "at-site", Digest: pins.Of(finalizeModule)}
	f.Spec.Mode, f.Spec.Attach = v1alpha1.ModeEnforce, true
	f.Spec.Settings = &apiextensionsv1.JSON{Raw: settings}
	f.Spec.ServiceAccount = &v1alpha1.ServiceAccountReference{Namespace: account.Namespace, Name: account.Name}
	f.Spec.Grants = &v1alpha1.FinalizerGrants{HTTP: []v1alpha1.HTTPGrant{{
		URL: s.site.server.URL + "/*", Methods: []v1alpha1.HTTPMethod{"DELETE"}, Addresses: []string{"127.0.0.0/8"},
	}}}
	return f, nil
}

// applyPolicies applies the permanent policies, and waits until they are in force.
func (s *testbed) applyPolicies(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "soak"}}
	f, err := s.finalizer(account)
	if err != nil {
		return err
	}
	for _, o := range []client.Object{
		account, module("collecting", fmt.Sprintf(collectModule, 0)), module("at-site", finalizeModule), collectPolicy(), propagatePolicy(), f,
	} {
		if err := s.api.create(ctx, o); err != nil {
			return err
		}
	}
	if err := eventually(ctx, func() error { return s.waitForEnforcing(ctx, &v1alpha1.ClusterFinalizer{}, "site") }); err != nil {
		return err
	}
	for _, name := range []string{"collect", "propagate"} {
		if err := eventually(ctx, func() error { return s.waitForEnforcing(ctx, &v1alpha1.ClusterGCPolicy{}, name) }); err != nil {
			return err
		}
	}
	return s.waitForWebhook(ctx)
}

func (s *testbed) waitForEnforcing(ctx context.Context, o client.Object, name string) error {
	if err := s.api.client.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return err
	}
	var conditions []metav1.Condition
	switch o := o.(type) {
	case *v1alpha1.ClusterFinalizer:
		conditions = o.Status.Conditions
	case *v1alpha1.ClusterGCPolicy:
		conditions = o.Status.Conditions
	}
	if !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionEnforcing) {
		return fmt.Errorf("%s is not in force: %v", name, conditions)
	}
	return nil
}

// waitForWebhook waits until the API server applies the policies: it reads a companion's webhook
// a moment after they are in force.
func (s *testbed) waitForWebhook(ctx context.Context) error {
	return eventually(ctx, func() error {
		w := &wave{testbed: s, name: fmt.Sprintf("soak-first-%d", time.Now().UnixNano())}
		if err := s.api.create(ctx, namespace(w.name)); err != nil {
			return err
		}
		defer func() { _ = s.api.delete(ctx, namespace(w.name), "") }()
		owner, err := w.create(ctx, configMaps, objectSpec{labels: map[string]string{propagateLabel: "orphan"}})
		if err != nil {
			return err
		}
		kept, err := w.create(ctx, configMaps, objectSpec{owners: blockingRefs(owner), labels: map[string]string{collectLabel: keep}})
		if err != nil {
			return err
		}
		collected, err := w.create(ctx, secrets, objectSpec{owners: blockingRefs(kept), labels: map[string]string{collectLabel: keep}})
		if err != nil {
			return err
		}
		if len(owner.GetFinalizers()) == 0 {
			return fmt.Errorf("API server does not add holds yet")
		}
		if err := s.api.delete(ctx, kept, ""); err != nil {
			return err
		}
		return w.waitForNoOwners(ctx, collected)
	})
}

// patch changes an object, and retries until it succeeds.
func (s *testbed) patch(ctx context.Context, o client.Object, change map[string]any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return eventually(ctx, func() error {
		return s.api.client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", body))
	})
}

// changePolicies changes the module that a policy uses and its pin, between which the policy
// keeps objects, and creates and deletes policies.
func (s *testbed) changePolicies(ctx, ending context.Context) error {
	every := max(s.length/40, 2*time.Second)
	var before *v1alpha1.ClusterGCPolicy
	for n := 1; pause(ctx, ending, every); n++ {
		text := fmt.Sprintf(collectModule, n)
		changed := &v1alpha1.ClusterPolicyModule{ObjectMeta: metav1.ObjectMeta{Name: "collecting"}}
		if err := s.patch(ctx, changed, map[string]any{"spec": map[string]any{"rego": map[string]any{"inline": text}}}); err != nil {
			return fmt.Errorf("change a module: %w", err)
		}
		pinning := &v1alpha1.ClusterGCPolicy{ObjectMeta: metav1.ObjectMeta{Name: "collect"}}
		if err := s.patch(ctx, pinning, map[string]any{"spec": map[string]any{"module": map[string]any{"digest": pins.Of(text)}}}); err != nil {
			return fmt.Errorf("pin a module: %w", err)
		}
		p := policy(fmt.Sprintf("turn-%d", n), []string{"configmaps", "services"}, "soak.gleaner.dev/nothing")
		p.Spec.Fixed = &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Foreground"}, Collect: &v1alpha1.FixedVerdict{Decision: "Orphan"}}
		p.Spec.MatchConditions = []v1alpha1.MatchCondition{{Name: "generation", Expression: fmt.Sprintf("object.metadata.name != 'none-%d'", n)}}
		p.Spec.Priority = int32(n % 100)
		if err := s.api.create(ctx, p); err != nil {
			return fmt.Errorf("create a policy: %w", err)
		}
		if before != nil {
			if err := s.api.delete(ctx, before, ""); err != nil {
				return fmt.Errorf("delete a policy: %w", err)
			}
		}
		before = p
		s.policyChanges.Add(1)
	}
	return nil
}
