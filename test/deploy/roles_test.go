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
			[]string{"list gleaner.dev gcpolicies", "get gleaner.dev policymodules", "watch gleaner.dev finalizers", "list gleaner.dev pauses"},
			[]string{"create gleaner.dev gcpolicies", "patch gleaner.dev policymodules", "create gleaner.dev finalizers", "list gleaner.dev clusterfinalizers", "create gleaner.dev pauses"},
		},
		"edit": {
			[]string{"watch gleaner.dev gcpolicies", "create gleaner.dev pauses", "delete gleaner.dev pauses"},
			[]string{
				"create gleaner.dev gcpolicies", "create gleaner.dev policymodules", "create gleaner.dev finalizers", "patch gleaner.dev finalizers",
				"create gleaner.dev clusterpauses", "patch gleaner.dev pauses/status",
			},
		},
		"admin": {
			[]string{"list gleaner.dev policymodules", "create gleaner.dev pauses"},
			[]string{
				"create gleaner.dev gcpolicies", "create gleaner.dev policymodules", "create gleaner.dev finalizers", "create gleaner.dev clusterfinalizers",
				"create gleaner.dev clusterpauses",
			},
		},
		"gleaner-editor": {
			[]string{"create gleaner.dev gcpolicies", "delete gleaner.dev policymodules", "patch gleaner.dev finalizers"},
			forbiddenToTenants,
		},
		"gleaner-safety-cluster-editor": {
			[]string{"create gleaner.dev clusterpauses", "delete gleaner.dev clusterpauses", "create gleaner.dev pauses"},
			[]string{"patch gleaner.dev clusterpauses/status", "create gleaner.dev clustergcpolicies"},
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
			w := newEnv(t, sharedInstallation(t).RESTConfig())
			w.expectRole(role, rights.may, rights.mayNot)
		})
	}
}

// forbiddenToTenants are permissions for cluster-scoped resources and status.
var forbiddenToTenants = []string{
	"create gleaner.dev clustergcpolicies", "patch gleaner.dev gcpolicies/status", "create gleaner.dev clusterpolicymodules",
	"create gleaner.dev clusterfinalizers", "patch gleaner.dev finalizers/status",
}

// expectRole binds a role in the test's namespace, and checks its permissions.
func (w *env) expectRole(role string, may, mayNot []string) {
	w.Helper()
	user := "holder-of-" + w.ns
	w.bindClusterRole(role, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	for _, right := range may { // once the first is effective, so are the others
		devtest.Eventually(w, timeout, func() error { return w.checkPermission(user, right, w.ns) })
	}
	for _, right := range mayNot {
		if w.checkPermission(user, right, w.ns) == nil {
			w.Errorf("%s grants %s", role, right)
		}
	}
}

func TestTenants_MayWritePolicies_WithTheOverlay(t *testing.T) {
	cluster := sharedInstallation(t)
	kubectl(t, cluster, "apply", "-k", "../../config/tenants")
	defer kubectl(t, cluster, "delete", "-k", "../../config/tenants")
	for _, role := range []string{"edit", "admin"} {
		t.Run(role, func(t *testing.T) {
			w := newEnv(t, cluster.RESTConfig())
			w.expectRole(role, []string{"create gleaner.dev gcpolicies", "delete gleaner.dev policymodules", "patch gleaner.dev finalizers"}, forbiddenToTenants)
		})
	}
}

func TestTenants_HaveAQuotaOfTheirResources(t *testing.T) {
	cluster := sharedInstallation(t)
	w := newEnv(t, cluster.RESTConfig())
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
			t.Errorf("no quota of %s: %v", name, quota.Spec.Hard)
		}
	}
}

// The API server refuses objects beyond the quota. The control plane has no quota
// controller, which would write the first status: the test does.
func TestTenants_AreRefusedModulesBeyondTheirQuota(t *testing.T) {
	cluster := sharedInstallation(t)
	w := newEnv(t, cluster.RESTConfig())
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

// The account's missing permissions show that other tests did not run it
// as an administrator.
func TestG71_ServiceAccount_CannotEscalateItsPermissions(t *testing.T) {
	w := newEnv(t, sharedInstallation(t).RESTConfig())
	for _, right := range []string{
		"delete example.com things", "patch apps deployments", "watch  secrets", "list apiregistration.k8s.io apiservices",
		"create  events", "create events.k8s.io events", "create authentication.k8s.io tokenreviews",
		"create authorization.k8s.io subjectaccessreviews", "patch gleaner.dev gcpolicies/status",
		"patch gleaner.dev finalizers/status", "patch gleaner.dev clusterfinalizers", "watch gleaner.dev finalizers",
		"impersonate  serviceaccounts", "create admissionregistration.k8s.io mutatingadmissionpolicies",
	} {
		devtest.Eventually(t, timeout, func() error { return w.checkPermission(account, right, w.ns) })
	}
	for _, right := range []string{"create  configmaps", "create  secrets", "create coordination.k8s.io leases", "update coordination.k8s.io leases"} {
		devtest.Eventually(t, timeout, func() error { return w.checkPermission(account, right, namespace) })
		if w.checkPermission(account, right, w.ns) == nil {
			t.Errorf("account may %s outside its namespace", right)
		}
	}
	for _, right := range []string{
		"create  pods", "update apps deployments", "create  pods/exec", "create  serviceaccounts/token",
		"impersonate  users", "impersonate  groups", "escalate rbac.authorization.k8s.io clusterroles",
		"bind rbac.authorization.k8s.io clusterroles", "deletecollection  configmaps", "create gleaner.dev clustergcpolicies",
		"create gleaner.dev finalizers", "update gleaner.dev clusterfinalizers",
		"update gleaner.dev gcpolicies/status",
	} {
		if w.checkPermission(account, right, namespace) == nil {
			t.Errorf("account may %s", right)
		}
	}
}

func TestG71_ServiceAccount_CannotExtendItsRole(t *testing.T) {
	cluster := sharedInstallation(t)
	config := &rest.Config{Host: cluster.RESTConfig().Host, BearerToken: token(t, cluster, namespace, "gleaner")}
	config.CAData = cluster.RESTConfig().CAData
	_, err := kubernetes.NewForConfigOrDie(config).RbacV1().ClusterRoles().Patch(t.Context(), "gleaner", types.JSONPatchType,
		[]byte(`[{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}}]`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
		t.Errorf("got error %v", err)
	}
}

// checkPermission checks a permission, given as "verb group resource/subresource".
func (w *env) checkPermission(user, right, namespace string) error {
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
