package graceperiod

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

const propagateText = "package gleaner\n\npropagate := {\"decision\": \"Abstain\"}\n"

// policy returns a ClusterGCPolicy in Enforce mode for a resource.
func policy(name, resource string, change func(*v1alpha1.GCPolicySpec)) *v1alpha1.ClusterGCPolicy {
	p := &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", name)}
	p.Spec = v1alpha1.GCPolicySpec{
		Resources: []v1alpha1.ResourceRule{{APIGroups: []string{"example.com"}, Resources: []string{resource}}}, Mode: v1alpha1.ModeEnforce,
	}
	change(&p.Spec)
	return p
}

func inherits(s *v1alpha1.GCPolicySpec) {
	s.Fixed = &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Foreground", InheritGracePeriod: true}}
}

func waits(s *v1alpha1.GCPolicySpec) {
	s.Fixed = &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Foreground"}}
}

func monitors(s *v1alpha1.GCPolicySpec) { inherits(s); s.Mode = v1alpha1.ModeMonitor }

func byModule(s *v1alpha1.GCPolicySpec) {
	s.Module = &v1alpha1.ModuleReference{Name: "m", Digest: policysettest.Digest(propagateText)}
}

func endpoint() *webhook.Endpoint {
	url := "https://localhost:9443/veto"
	e := &webhook.Endpoint{Client: admissionv1.WebhookClientConfig{URL: &url}, Identity: &latest.Value[webhook.Identity]{}}
	e.Identity.Store(webhook.Identity{CABundle: []byte("CA"), Secret: "secret"})
	return e
}

// installed has an Installer install what policies require, and returns the resources of the webhook, and why it failed.
func installed(t *testing.T, endpoint *webhook.Endpoint, existing []client.Object, resources ...client.Object) ([]string, admission.Failures) {
	t.Helper()
	policies := policysettest.New(t, nil, resources...)
	api := fake.NewClientBuilder().WithScheme(policysettest.Scheme(t)).WithObjects(existing...).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gleaner-system", UID: "u"}}).Build()
	g := &gate.Gate{}
	g.Lead()
	i := New(Options{
		Objects: admission.NewObjects(api, "gleaner-system"), Snapshots: policies.Publisher, Gate: g, Webhook: endpoint, Now: time.Now, Log: testr.New(t),
	})
	policies.Run()
	policies.Settle()
	i.Update(t.Context())
	status, ok := i.Status().Load()
	if !ok {
		t.Fatal("no status")
	}
	return rulesIn(t, api), status.Failed
}

func rulesIn(t *testing.T, api client.Client) (all []string) {
	t.Helper()
	var list admissionv1.ValidatingWebhookConfigurationList
	if err := api.List(context.WithoutCancel(t.Context()), &list); err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		for _, r := range c.Webhooks[0].Rules {
			all = append(all, r.Resources...)
		}
	}
	return all
}

func TestInstaller_SelectsWhatPoliciesMayHaveInherited(t *testing.T) {
	m := policysettest.Module("m", propagateText)
	got, failed := installed(t, endpoint(), nil, m,
		policy("fixed", "fixed", inherits), policy("same", "fixed", inherits), policy("module", "modules", byModule),
		policy("waits", "others", waits), policy("monitors", "monitored", monitors))
	if slices.Sort(got); len(failed) != 0 || !slices.Equal(got, []string{"fixed", "modules"}) {
		t.Errorf("the webhook selects %v, failed %v", got, failed)
	}
}

func TestInstaller_RemovesTheWebhookWhenNothingIsInherited(t *testing.T) {
	existing := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}, Webhooks: []admissionv1.ValidatingWebhook{webhookOf(nil, admissionv1.WebhookClientConfig{}, metav1.LabelSelectorRequirement{})},
	}
	existing.Webhooks[0].Rules = []admissionv1.RuleWithOperations{deletesOf([]string{"example.com"}, []string{"old"})}
	if got, failed := installed(t, endpoint(), []client.Object{existing}, policy("waits", "others", waits)); len(failed)+len(got) != 0 {
		t.Errorf("the webhook selects %v, failed %v", got, failed)
	}
}

func TestInstaller_WithoutWebhooksFailsOnlyIfAPolicyAsks(t *testing.T) {
	got, failed := installed(t, nil, nil, policy("fixed", "fixed", inherits))
	if err := failed.Of(ConfigurationName); len(got) != 0 || err == nil || !strings.Contains(err.Error(), "--enable-webhooks") {
		t.Errorf("the webhook selects %v, failed %v", got, failed)
	}
	got, failed = installed(t, nil, nil, policysettest.Module("m", propagateText), policy("module", "modules", byModule))
	if len(got)+len(failed) != 0 {
		t.Errorf("the webhook selects %v, failed %v", got, failed)
	}
}

func TestInstaller_BoundsTheRules(t *testing.T) {
	var many []client.Object
	for i := range admission.MaxPolicies + 1 {
		many = append(many, policy(fmt.Sprintf("p%d", i), fmt.Sprintf("r%d", i), inherits))
	}
	if got, failed := installed(t, endpoint(), nil, many...); len(failed) != 0 || !slices.Equal(got, []string{"*"}) {
		t.Errorf("the webhook selects %v, failed %v", got, failed)
	}
}
