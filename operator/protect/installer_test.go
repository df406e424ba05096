package protect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// cluster is an API server in memory with an Installer.
type cluster struct {
	*testing.T
	client    client.Client
	policies  *policysettest.Fixture
	installer *Installer
	now       time.Time
	refused   map[string]bool // names of admission objects that can't be written
	withoutAP bool            // it has no ValidatingAdmissionPolicies
}

func newCluster(t *testing.T, endpoint *webhook.Endpoint, resources ...client.Object) *cluster {
	t.Helper()
	c := &cluster{T: t, now: time.Unix(0, 0), refused: map[string]bool{}, policies: policysettest.New(t, nil, resources...)}
	c.client = fake.NewClientBuilder().WithScheme(policysettest.Scheme(t)).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gleaner-system", UID: "u"}}).
		WithInterceptorFuncs(interceptor.Funcs{Create: c.create, List: c.list}).Build()
	g := &gate.Gate{}
	g.Lead()
	c.installer = New(Options{
		Objects: admission.NewObjects(c.client, "gleaner-system"), Snapshots: c.policies.Publisher, Gate: g, Webhook: endpoint,
		Versions: func(schema.GroupResource) string { return "v1" }, Now: func() time.Time { return c.now }, Log: testr.New(t),
	})
	c.policies.Run()
	return c
}

func (c *cluster) create(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
	if review, is := o.(*authenticationv1.SelfSubjectReview); is {
		review.Status.UserInfo.Username = "gleaner"
		return nil
	}
	if c.refused[o.GetName()] {
		return errors.New("it is refused")
	}
	return api.Create(ctx, o, options...)
}

func (c *cluster) list(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	if _, is := list.(*admissionv1.ValidatingAdmissionPolicyList); is && c.withoutAP {
		return &meta.NoKindMatchError{}
	}
	return api.List(ctx, list, options...)
}

// update has the installer install the current snapshot, and returns why policies failed.
func (c *cluster) update() admission.Failures {
	c.Helper()
	c.policies.Settle()
	c.installer.Update(c.Context())
	s, ok := c.installer.Status().Load()
	if !ok {
		c.Fatal("no status")
	}
	return s.Failed
}

// installed returns the names of admission policies and of webhook configurations.
func (c *cluster) installed() (policies, webhooks []string) {
	c.Helper()
	var all admissionv1.ValidatingAdmissionPolicyList
	var configurations admissionv1.ValidatingWebhookConfigurationList
	if err := errors.Join(c.client.List(c.Context(), &configurations), c.client.List(c.Context(), &all)); err != nil && !c.withoutAP {
		c.Fatal(err)
	}
	for _, p := range all.Items {
		policies = append(policies, strings.TrimPrefix(p.Name, namePrefix))
	}
	for _, w := range configurations.Items {
		webhooks = append(webhooks, strings.TrimPrefix(w.Name, namePrefix))
	}
	return policies, webhooks
}

func (c *cluster) expect(policies, webhooks []string) {
	c.Helper()
	if p, w := c.installed(); !slices.Equal(p, policies) || !slices.Equal(w, webhooks) {
		c.Errorf("policies %v, webhooks %v; want %v, %v", p, w, policies, webhooks)
	}
}

func endpoint() *webhook.Endpoint {
	url := "https://localhost:9443/veto"
	e := &webhook.Endpoint{Client: admissionv1.WebhookClientConfig{URL: &url}, Identity: &latest.Value[webhook.Identity]{}}
	e.Identity.Store(webhook.Identity{CABundle: []byte("CA"), Secret: "secret"})
	return e
}

func pinned(change func(*v1alpha1.GCPolicySpec)) *v1alpha1.ClusterGCPolicy {
	return policy("module", with(byModule, change, func(s *v1alpha1.GCPolicySpec) { s.Module.Digest = policysettest.Digest(protectText) }))
}

func TestInstaller_RestoresWhatOthersHaveDeleted(t *testing.T) {
	c := newCluster(t, nil, policy("fixed", deny))
	if failed := c.update(); len(failed) != 0 {
		t.Fatal(failed)
	}
	c.expect([]string{"fixed"}, nil)
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: namePrefix + "fixed"}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: namePrefix + "fixed"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "gleaner-system", Name: c.installer.options.Objects.Parameter().Name}},
	} {
		if err := c.client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	c.now = c.now.Add(admission.ResyncInterval)
	c.update()
	c.expect([]string{"fixed"}, nil)
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: namePrefix + "fixed"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "gleaner-system", Name: c.installer.options.Objects.Parameter().Name}},
	} {
		if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Error(err)
		}
	}
}

func TestInstaller_OnePolicyThatIsRefusedAffectsNoOther(t *testing.T) {
	c := newCluster(t, nil, policy("fixed", deny), policy("refused", deny))
	c.refused[namePrefix+"refused"] = true
	failed := c.update()
	if failed.Of(namePrefix+"refused") == nil || failed.Of(namePrefix+"fixed") != nil {
		t.Errorf("failed %v", failed)
	}
	c.expect([]string{"fixed"}, nil)
}

// What protects an object stays until something else does.
func TestInstaller_RemovesNothingBeforeTheReplacementIsInstalled(t *testing.T) {
	m := policysettest.Module("m", protectText)
	c := newCluster(t, endpoint(), m, policy("fixed", deny), pinned(func(s *v1alpha1.GCPolicySpec) { s.Priority = -1 }))
	c.update()
	c.expect([]string{"fixed"}, []string{"module"})
	c.installer.options.Webhook = nil
	module := &v1alpha1.ClusterGCPolicy{}
	if err := c.policies.Client.Get(t.Context(), client.ObjectKey{Name: "module"}, module); err != nil {
		t.Fatal(err)
	}
	module.Spec.Priority = 1 // now the fixed one needs a webhook as well
	c.policies.Update(module)
	c.policies.Publisher.Refresh()
	if failed := c.update(); failed.Of(namePrefix+"fixed") == nil || failed.Of(namePrefix+"module") == nil {
		t.Errorf("failed %v", failed)
	}
	c.expect([]string{"fixed"}, []string{"module"})
	c.installer.options.Webhook = endpoint()
	c.update()
	c.expect(nil, []string{"fixed", "module"})
}

func TestInstaller_WithoutAdmissionPoliciesUsesWebhooks(t *testing.T) {
	c := newCluster(t, endpoint(), policy("fixed", deny))
	c.withoutAP = true
	if failed := c.update(); len(failed) != 0 {
		t.Fatal(failed)
	}
	c.expect(nil, []string{"fixed"})
}

func TestInstaller_BoundsThePolicies(t *testing.T) {
	var many []client.Object
	for i := range admission.MaxPolicies + 1 {
		many = append(many, policy("p"+strings.Repeat("x", i), deny))
	}
	c := newCluster(t, nil, many...)
	failed := c.update()
	if policies, _ := c.installed(); len(policies) != admission.MaxPolicies || len(failed) != 1 {
		t.Errorf("%d policies, failed %v", len(policies), failed)
	}
}
