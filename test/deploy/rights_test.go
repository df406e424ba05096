package deploy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestRoles(t *testing.T) {
	for role, rights := range map[string]struct{ may, mayNot []string }{
		"view": {
			[]string{"list gleaner.dev gcpolicies", "get gleaner.dev policymodules", "watch gleaner.dev finalizers"},
			[]string{"create gleaner.dev gcpolicies", "patch gleaner.dev policymodules", "create gleaner.dev finalizers", "list gleaner.dev clusterfinalizers"},
		},
		"edit": {
			[]string{"watch gleaner.dev gcpolicies"},
			[]string{"create gleaner.dev gcpolicies", "create gleaner.dev policymodules", "create gleaner.dev finalizers", "patch gleaner.dev finalizers"},
		},
		"admin": {
			[]string{"list gleaner.dev policymodules"},
			[]string{"create gleaner.dev gcpolicies", "create gleaner.dev policymodules", "create gleaner.dev finalizers", "create gleaner.dev clusterfinalizers"},
		},
		"gleaner-editor": {
			[]string{"create gleaner.dev gcpolicies", "delete gleaner.dev policymodules", "patch gleaner.dev finalizers"},
			tenantsMayNot,
		},
		"gleaner-cluster-viewer": {
			[]string{"list gleaner.dev clustergcpolicies", "watch gleaner.dev gcpolicies", "get gleaner.dev clusterfinalizers"},
			[]string{"patch gleaner.dev clustergcpolicies", "patch gleaner.dev clusterfinalizers"},
		},
		"gleaner-cluster-editor": {
			[]string{
				"create gleaner.dev clustergcpolicies", "delete gleaner.dev clusterpolicymodules", "patch gleaner.dev gcpolicies",
				"create gleaner.dev clusterfinalizers", "patch gleaner.dev finalizers",
			},
			[]string{"update gleaner.dev clustergcpolicies/status", "update gleaner.dev clusterfinalizers/status"},
		},
	} {
		t.Run(role, func(t *testing.T) {
			w := newWorld(t, installed(t).RESTConfig())
			w.gives(role, rights.may, rights.mayNot)
		})
	}
}

// tenantsMayNot is what is for the whole cluster, or Gleaner's own.
var tenantsMayNot = []string{
	"create gleaner.dev clustergcpolicies", "patch gleaner.dev gcpolicies/status", "create gleaner.dev clusterpolicymodules",
	"create gleaner.dev clusterfinalizers", "patch gleaner.dev finalizers/status",
}

// gives binds a role in the test's namespace, and makes sure of what it gives.
func (w *world) gives(role string, may, mayNot []string) {
	w.Helper()
	user := "holder-of-" + w.ns
	w.bind(role, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	for _, right := range may { // when the first is known, so are the others
		devtest.Eventually(w, patience, func() error { return w.may(user, right, w.ns) })
	}
	for _, right := range mayNot {
		if w.may(user, right, w.ns) == nil {
			w.Errorf("%s gives the right to %s", role, right)
		}
	}
}

func TestTenants_MayWritePoliciesWhereTheOverlayIsApplied(t *testing.T) {
	cluster := installed(t)
	kubectl(t, cluster, "apply", "-k", "../../config/tenants")
	defer kubectl(t, cluster, "delete", "-k", "../../config/tenants")
	for _, role := range []string{"edit", "admin"} {
		t.Run(role, func(t *testing.T) {
			w := newWorld(t, cluster.RESTConfig())
			w.gives(role, []string{"create gleaner.dev gcpolicies", "delete gleaner.dev policymodules", "patch gleaner.dev finalizers"}, tenantsMayNot)
		})
	}
}

func TestTenants_HaveAQuotaOfWhatTheyMayWrite(t *testing.T) {
	cluster := installed(t)
	w := newWorld(t, cluster.RESTConfig())
	kubectl(t, cluster, "apply", "-n", w.ns, "-k", "../../config/tenants/quota")
	quota, err := w.kube.CoreV1().ResourceQuotas(w.ns).Get(t.Context(), "gleaner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role, err := os.ReadFile("../../config/tenants/authors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tenant rbacv1.ClusterRole
	if err := yaml.UnmarshalStrict(role, &tenant); err != nil {
		t.Fatal(err)
	}
	for _, resource := range tenant.Rules[0].Resources {
		name := corev1.ResourceName("count/" + resource + "." + tenant.Rules[0].APIGroups[0])
		if limit, bounded := quota.Spec.Hard[name]; !bounded || limit.Sign() <= 0 {
			t.Errorf("there is no quota of %s: %v", name, quota.Spec.Hard)
		}
	}
}

// The API server refuses what is beyond the quota. The control plane here has no controller of
// quotas, which would write the first status: the test does.
func TestTenants_AreRefusedAModuleBeyondTheirQuota(t *testing.T) {
	cluster := installed(t)
	w := newWorld(t, cluster.RESTConfig())
	kubectl(t, cluster, "apply", "-n", w.ns, "-k", "../../config/tenants/quota")
	quotas := w.kube.CoreV1().ResourceQuotas(w.ns)
	quota, err := quotas.Get(t.Context(), "gleaner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{}
	for name := range quota.Spec.Hard {
		quota.Status.Used[name] = resource.MustParse("0")
	}
	if _, err := quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	modules := dynamic.NewForConfigOrDie(cluster.RESTConfig()).Resource(schema.GroupVersionResource{
		Group: "gleaner.dev", Version: "v1alpha1", Resource: "policymodules",
	}).Namespace(w.ns)
	const hard = 5 // in config/tenants/quota
	for n := range hard + 1 {
		_, err := modules.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gleaner.dev/v1alpha1", "kind": "PolicyModule", "metadata": map[string]any{"name": fmt.Sprintf("m-%d", n)},
			"spec": map[string]any{"rego": map[string]any{"inline": "package gleaner\ncollect := {\"decision\": \"Abstain\"}"}},
		}}, metav1.CreateOptions{})
		switch {
		case n < hard && err != nil:
			t.Fatalf("module %d of %d: %v", n+1, hard, err)
		case n == hard && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: gleaner")):
			t.Errorf("the module beyond the quota: %v", err)
		}
	}
}

// What the account must not be able to do shows that what it did in other tests
// it did not as an administrator.
func TestG71_TheAccountMayCollectAnythingAndGiveNothingToItself(t *testing.T) {
	w := newWorld(t, installed(t).RESTConfig())
	for _, right := range []string{
		"delete example.com things", "patch apps deployments", "watch  secrets", "list apiregistration.k8s.io apiservices",
		"create  events", "create events.k8s.io events", "create authentication.k8s.io tokenreviews",
		"create authorization.k8s.io subjectaccessreviews", "patch gleaner.dev gcpolicies/status",
		"patch gleaner.dev finalizers/status", "patch gleaner.dev clusterfinalizers", "watch gleaner.dev finalizers",
		"impersonate  serviceaccounts", "create admissionregistration.k8s.io mutatingadmissionpolicies",
	} {
		devtest.Eventually(t, patience, func() error { return w.may(account, right, w.ns) })
	}
	for _, right := range []string{"create  configmaps", "create  secrets", "create coordination.k8s.io leases", "update coordination.k8s.io leases"} {
		devtest.Eventually(t, patience, func() error { return w.may(account, right, namespace) })
		if w.may(account, right, w.ns) == nil {
			t.Errorf("it has the right to %s outside of its namespace", right)
		}
	}
	for _, right := range []string{
		"create  pods", "update apps deployments", "create  pods/exec", "create  serviceaccounts/token",
		"impersonate  users", "impersonate  groups", "escalate rbac.authorization.k8s.io clusterroles",
		"bind rbac.authorization.k8s.io clusterroles", "deletecollection  configmaps", "create gleaner.dev clustergcpolicies",
		"create gleaner.dev finalizers", "update gleaner.dev clusterfinalizers",
		"update gleaner.dev gcpolicies/status",
	} {
		if w.may(account, right, namespace) == nil {
			t.Errorf("it has the right to %s", right)
		}
	}
}

func TestG71_TheAccountCanNotWidenItsRole(t *testing.T) {
	cluster := installed(t)
	config := &rest.Config{Host: cluster.RESTConfig().Host, BearerToken: token(t, cluster, namespace, "gleaner")}
	config.CAData = cluster.RESTConfig().CAData
	_, err := kubernetes.NewForConfigOrDie(config).RbacV1().ClusterRoles().Patch(t.Context(), "gleaner", types.JSONPatchType,
		[]byte(`[{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}}]`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
		t.Errorf("the API server says %v", err)
	}
}

// may asks for a right, as "verb group resource/subresource".
func (w *world) may(user, right, namespace string) error {
	w.Helper()
	parts := strings.Split(right, " ")
	resource, subresource, _ := strings.Cut(parts[2], "/")
	review, err := w.kube.AuthorizationV1().SubjectAccessReviews().Create(w.Context(), &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: parts[0], Group: parts[1], Resource: resource, Subresource: subresource,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if !review.Status.Allowed {
		return fmt.Errorf("%s may not %s in %s", user, right, namespace)
	}
	return nil
}
