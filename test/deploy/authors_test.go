package deploy

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// Policies that require permissions of their authors.
const (
	readSpec = `
resources: [{apiGroups: [""], resources: [configmaps]}]
serviceAccount: {name: reader}
fixed: {collect: {decision: Orphan}}`
	readElsewhereSpec = `
resources: [{apiGroups: [""], resources: [configmaps]}]
serviceAccount: {namespace: elsewhere, name: reader}
fixed: {collect: {decision: Orphan}}`
	keepSpec = `
resources: [{apiGroups: ["", apps], resources: [configmaps, deployments]}]
fixed: {collect: {decision: Orphan}}`
	keepRolesSpec = `
resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}]
mode: Enforce
fixed: {collect: {decision: Orphan}}`
	waitSpec = `
resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}]
mode: Enforce
fixed: {collect: {decision: Wait, after: 720h}}`
	delaySpec = `
resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}]
mode: Enforce
fixed: {collect: {decision: Delete, delay: 720h}}`
	faultSpec = `
resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}]
objectSelector: {matchLabels: {a: "no value of a label"}}
fixed: {collect: {decision: Delete}}`
	propagateSpec = `
resources: [{apiGroups: [""], resources: [configmaps]}, {apiGroups: [apps], resources: [deployments, statefulsets]}]
fixed: {propagate: {decision: Foreground}}`
	moduleSpec = `
resources: [{apiGroups: [apps], resources: [deployments]}]
module: {name: any}`
	moduleForAllSpec = `
resources: [{apiGroups: ["*"], resources: ["*"]}]
module: {name: any}`
)

// manyResourcesSpec returns a policy that selects n resources of one group.
func manyResourcesSpec(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("things%d", i)
	}
	return `
resources: [{apiGroups: [example.com], resources: [` + strings.Join(names, ", ") + `]}]
fixed: {propagate: {decision: Foreground}}`
}

func update(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"update"}}
}

func impersonate(account string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{account}, Verbs: []string{"impersonate"}}
}

func TestAuthor_OfAGCPolicy(t *testing.T) {
	for claim, tc := range map[string]struct {
		spec    string
		may     []rbacv1.PolicyRule
		refusal string // "": accepted
	}{
		"may not read as an account that they may not impersonate": {readSpec, nil,
			"the policy reads as service account NAMESPACE/reader, which you may not impersonate"},
		"may not read as an account other than the one that they may impersonate": {readSpec, []rbacv1.PolicyRule{impersonate("other")},
			"the policy reads as service account NAMESPACE/reader, which you may not impersonate"},
		"may read as an account that they may impersonate": {readSpec, []rbacv1.PolicyRule{impersonate("reader"), update("", "configmaps")}, ""},
		"may not keep what they may not update": {keepSpec, []rbacv1.PolicyRule{update("", "configmaps"), update("apps", "configmaps")},
			"the policy may keep or change /deployments, which you may not update in namespace NAMESPACE"},
		"may not keep role bindings with the rights of edit": {keepRolesSpec, []rbacv1.PolicyRule{update("", "*"), update("apps", "*")},
			"the policy may keep or change rbac.authorization.k8s.io/rolebindings, which you may not update in namespace NAMESPACE"},
		"may not have role bindings wait":                {waitSpec, nil, "the policy may keep or change rbac.authorization.k8s.io/rolebindings"},
		"may not delete role bindings later":             {delaySpec, nil, "the policy may keep or change rbac.authorization.k8s.io/rolebindings"},
		"may not keep them in Monitor, nor by a fault":   {faultSpec, nil, "the policy may keep or change rbac.authorization.k8s.io/rolebindings"},
		"may keep role bindings that they may update":    {keepRolesSpec, []rbacv1.PolicyRule{update("rbac.authorization.k8s.io", "rolebindings")}, ""},
		"may keep what they may update, in other groups": {keepSpec, []rbacv1.PolicyRule{update("", "*"), update("apps", "*")}, ""},
		"may not propagate to what they may not update": {propagateSpec, []rbacv1.PolicyRule{update("", "configmaps"), update("apps", "deployments")},
			"the policy may keep or change apps/statefulsets, which you may not update in namespace NAMESPACE"},
		"may not propagate to what they may update in another group alone": {propagateSpec,
			[]rbacv1.PolicyRule{update("", "configmaps", "deployments", "statefulsets"), update("apps", "statefulsets")},
			"the policy may keep or change apps/deployments, which you may not update in namespace NAMESPACE"},
		"may propagate to what they may update": {propagateSpec,
			[]rbacv1.PolicyRule{update("", "configmaps"), update("apps", "deployments", "statefulsets")}, ""},
		"may not have a module decide about what they may not update": {moduleSpec, nil,
			"the policy may keep or change apps/deployments, which you may not update in namespace NAMESPACE"},
		"may have a module decide about what they may update":                    {moduleSpec, []rbacv1.PolicyRule{update("apps", "deployments")}, ""},
		"may propagate to as many resources as can be checked":                   {manyResourcesSpec(20), []rbacv1.PolicyRule{update("example.com", "*")}, ""},
		"may not propagate to the last of as many resources as can be checked":   {manyResourcesSpec(20), []rbacv1.PolicyRule{update("example.com", firstResources(19)...)}, "example.com/things19"},
		"may not propagate to more resources than can be checked":                {manyResourcesSpec(21), []rbacv1.PolicyRule{update("example.com", "*")}, "select at most 20"},
		"may propagate to more resources than can be checked, if they may all":   {manyResourcesSpec(30), []rbacv1.PolicyRule{update("*", "*")}, ""},
		"may not propagate to more resources with rights in this group and core": {manyResourcesSpec(30), []rbacv1.PolicyRule{update("example.com", "*"), update("", "*")}, "select at most 20"},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAuthor(t, gcPolicies)
			a.grantInNamespace(a.ns, tc.may...)
			a.expectApply(tc.spec, strings.ReplaceAll(tc.refusal, "NAMESPACE", a.ns))
		})
	}
}

// firstResources returns the names of the first n resources that many selects.
func firstResources(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("things%d", i)
	}
	return names
}

func TestAuthor_OfAClusterGCPolicy(t *testing.T) {
	for claim, tc := range map[string]struct {
		spec     string
		anywhere []rbacv1.PolicyRule
		here     []rbacv1.PolicyRule // in one namespace
		refusal  string
	}{
		"may not read as an account that they may not impersonate": {readElsewhereSpec, nil, []rbacv1.PolicyRule{impersonate("reader")},
			"the policy reads as service account elsewhere/reader, which you may not impersonate"},
		"may read as an account that they may impersonate": {readElsewhereSpec, []rbacv1.PolicyRule{impersonate("reader"), update("", "configmaps")}, nil, ""},
		"may not propagate to what they may update in one namespace": {propagateSpec, nil,
			[]rbacv1.PolicyRule{update("", "configmaps"), update("apps", "*")},
			"the policy may keep or change /configmaps, which you may not update in all namespaces"},
		"may propagate to what they may update in all namespaces": {propagateSpec,
			[]rbacv1.PolicyRule{update("", "configmaps"), update("apps", "*")}, nil, ""},
		"may not have a module decide about everything": {moduleForAllSpec, []rbacv1.PolicyRule{update("", "*"), update("apps", "*")}, nil,
			"the policy may keep or change */*, which you may not update in all namespaces"},
		"may have a module decide about everything if they may update everything": {moduleForAllSpec, []rbacv1.PolicyRule{update("*", "*")}, nil, ""},
		"may not keep what they may update in one namespace": {keepRolesSpec, nil, []rbacv1.PolicyRule{update("rbac.authorization.k8s.io", "*")},
			"the policy may keep or change rbac.authorization.k8s.io/rolebindings, which you may not update in all namespaces"},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAuthor(t, clusterGCPolicies)
			a.grantEverywhere(tc.anywhere...)
			a.grantInNamespace(a.ns, tc.here...)
			a.expectApply(tc.spec, tc.refusal)
		})
	}
}

func TestAuthor_OfAChange(t *testing.T) {
	a := newAuthor(t, gcPolicies)
	if _, err := a.policies(a.admin).Create(t.Context(), a.policy(readSpec), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.grantInNamespace(a.ns, update("", "configmaps"))
	patch := func(body string) error {
		_, err := a.policies(a.as).Patch(t.Context(), "policy", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	t.Run("needs the permissions for the new policy", func(t *testing.T) {
		a.waitForRefused("which you may not impersonate", func() error { return patch(`{"spec": {"mode": "Enforce"}}`) })
		a.waitForRefused("which you may not impersonate", func() error { return patch(`{"spec": {"priority": 1}}`) })
	})
	t.Run("needs no permissions for labels", func(t *testing.T) {
		a.waitForAccepted(func() error { return patch(`{"metadata": {"labels": {"a": "b"}}}`) })
	})
	t.Run("needs no permissions to remove the account", func(t *testing.T) {
		a.waitForAccepted(func() error { return patch(`{"spec": {"serviceAccount": null}}`) })
	})
}

func TestAuthor_ExpressionsMatchTheSchemas(t *testing.T) {
	expectTypeChecked(t, "gleaner-policy-authors")
}

// expectTypeChecked waits until the API server has checked the expressions of an admission policy.
func expectTypeChecked(t *testing.T, name string) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(sharedInstallation(t).RESTConfig()).Resource(schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies",
	})
	devtest.Eventually(t, timeout, func() error {
		policy, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if seen, _, err := unstructured.NestedInt64(policy.Object, "status", "observedGeneration"); err != nil || seen != policy.GetGeneration() {
			return fmt.Errorf("expressions have not been type-checked: %w", err)
		}
		if warnings, found, _ := unstructured.NestedFieldNoCopy(policy.Object, "status", "typeChecking", "expressionWarnings"); found {
			t.Fatalf("the API server warns: %v", warnings)
		}
		return nil
	})
}

var (
	gcPolicies        = schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "gcpolicies"}
	clusterGCPolicies = schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "clustergcpolicies"}
	finalizers        = schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "finalizers"}
	clusterFinalizers = schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterfinalizers"}

	kinds = map[schema.GroupVersionResource]string{
		gcPolicies: "GCPolicy", clusterGCPolicies: "ClusterGCPolicy", finalizers: "Finalizer", clusterFinalizers: "ClusterFinalizer",
		archivePolicies: "ArchivePolicy", clusterArchivePolicies: "ClusterArchivePolicy",
		retentionPolicies: "RetentionPolicy", clusterRetentionPolicies: "ClusterRetentionPolicy",
	}
)

// checkedOnce waits once for the API server to enforce the checks of authors.
var checkedOnce sync.Once

// author is a user who may write policies or finalizers, and initially nothing else.
type author struct {
	*env
	admin, as *rest.Config
	user      string
	resource  schema.GroupVersionResource
}

func newAuthor(t *testing.T, resource schema.GroupVersionResource) *author {
	t.Helper()
	admin := sharedInstallation(t).RESTConfig()
	a := plainAuthor(newEnv(t, admin), admin, resource)
	checkedOnce.Do(func() {
		unauthorized := plainAuthor(newEnv(t, admin), admin, gcPolicies)
		unauthorized.waitForRefused("which you may not impersonate", func() error { return unauthorized.dryRunCreate(readSpec) })
	})
	return a
}

func plainAuthor(w *env, admin *rest.Config, resource schema.GroupVersionResource) *author {
	w.Helper()
	a := &author{env: w, admin: admin, as: rest.CopyConfig(admin), user: "author-of-" + w.ns, resource: resource}
	a.as.Impersonate.UserName = a.user
	a.grantEverywhere(rbacv1.PolicyRule{APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}, Verbs: []string{"create", "get", "patch"}})
	return a
}

func (a *author) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: a.user}}
}

// grantEverywhere grants the author permissions in all namespaces.
func (a *author) grantEverywhere(rules ...rbacv1.PolicyRule) {
	a.Helper()
	role, err := a.kube.RbacV1().ClusterRoles().Create(a.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: a.ns + "-"}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	a.bindClusterRole(role.Name, a.subjects()[0])
}

// grantInNamespace grants the author permissions in one namespace.
func (a *author) grantInNamespace(namespace string, rules ...rbacv1.PolicyRule) {
	a.Helper()
	meta := metav1.ObjectMeta{Name: "author"}
	_, made := a.kube.RbacV1().Roles(namespace).Create(a.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	_, bound := a.kube.RbacV1().RoleBindings(namespace).Create(a.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: a.subjects(), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
	}, metav1.CreateOptions{})
	if err := errors.Join(made, bound); err != nil {
		a.Fatal(err)
	}
}

func (a *author) policies(config *rest.Config) dynamic.ResourceInterface {
	client := dynamic.NewForConfigOrDie(config).Resource(a.resource)
	if a.resource == gcPolicies || a.resource == finalizers || a.resource == archivePolicies || a.resource == retentionPolicies {
		return client.Namespace(a.ns)
	}
	return client
}

func (a *author) policy(spec string) *unstructured.Unstructured {
	a.Helper()
	var content map[string]any
	if err := yaml.UnmarshalStrict([]byte(spec), &content); err != nil {
		a.Fatal(err)
	}
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	policy.SetGroupVersionKind(a.resource.GroupVersion().WithKind(kinds[a.resource]))
	policy.SetName("policy")
	return policy
}

// dryRunCreate creates a policy in a dry run.
func (a *author) dryRunCreate(spec string) error {
	_, err := a.policies(a.as).Create(a.Context(), a.policy(spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// expectApply creates a policy, and checks that it is accepted or refused.
func (a *author) expectApply(spec, refusal string) {
	a.Helper()
	if refusal == "" {
		a.waitForAccepted(func() error { return a.dryRunCreate(spec) })
		return
	}
	a.waitForRefused(refusal, func() error { return a.dryRunCreate(spec) })
}

// waitForAccepted waits for success: the API server reads permissions with a delay.
func (a *author) waitForAccepted(try func() error) {
	a.Helper()
	devtest.Eventually(a, timeout, try)
}

// waitForRefused waits for an error with this text.
func (a *author) waitForRefused(why string, try func() error) {
	a.Helper()
	devtest.Eventually(a, timeout, func() error {
		err := try()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("not refused with %q: %w", why, err)
		}
		return nil
	})
}
