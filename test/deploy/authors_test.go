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

// Policies that make use of rights.
const (
	reads = `
resources: [{apiGroups: [""], resources: [configmaps]}]
serviceAccount: {name: reader}
fixed: {collect: {decision: Orphan}}`
	readsElsewhere = `
resources: [{apiGroups: [""], resources: [configmaps]}]
serviceAccount: {namespace: elsewhere, name: reader}
fixed: {collect: {decision: Orphan}}`
	keeps = `
resources: [{apiGroups: ["", apps], resources: [configmaps, deployments]}]
fixed: {collect: {decision: Orphan}}`
	keepsRoles = `
resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}]
mode: Enforce
fixed: {collect: {decision: Orphan}}`
	waitsFor = `
resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}]
mode: Enforce
fixed: {collect: {decision: Wait, after: 720h}}`
	deletesLater = `
resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}]
mode: Enforce
fixed: {collect: {decision: Delete, delay: 720h}}`
	faulty = `
resources: [{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings]}]
objectSelector: {matchLabels: {a: "no value of a label"}}
fixed: {collect: {decision: Delete}}`
	propagates = `
resources: [{apiGroups: [""], resources: [configmaps]}, {apiGroups: [apps], resources: [deployments, statefulsets]}]
fixed: {propagate: {decision: Foreground}}`
	asks = `
resources: [{apiGroups: [apps], resources: [deployments]}]
module: {name: any}`
	asksAboutAll = `
resources: [{apiGroups: ["*"], resources: ["*"]}]
module: {name: any}`
)

// many selects as many resources of one group.
func many(n int) string {
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

func TestAuthorOfAGCPolicy(t *testing.T) {
	for claim, tc := range map[string]struct {
		spec    string
		may     []rbacv1.PolicyRule
		refusal string // "" if it is accepted
	}{
		"may not read as an account that they may not impersonate": {reads, nil,
			"the policy reads as service account NAMESPACE/reader, which you may not impersonate"},
		"may not read as an account other than the one that they may impersonate": {reads, []rbacv1.PolicyRule{impersonate("other")},
			"the policy reads as service account NAMESPACE/reader, which you may not impersonate"},
		"may read as an account that they may impersonate": {reads, []rbacv1.PolicyRule{impersonate("reader"), update("", "configmaps")}, ""},
		"may not keep what they may not update": {keeps, []rbacv1.PolicyRule{update("", "configmaps"), update("apps", "configmaps")},
			"the policy may keep or change /deployments, which you may not update in namespace NAMESPACE"},
		"may not keep role bindings with the rights of edit": {keepsRoles, []rbacv1.PolicyRule{update("", "*"), update("apps", "*")},
			"the policy may keep or change rbac.authorization.k8s.io/rolebindings, which you may not update in namespace NAMESPACE"},
		"may not have role bindings wait":                {waitsFor, nil, "the policy may keep or change rbac.authorization.k8s.io/rolebindings"},
		"may not delete role bindings later":             {deletesLater, nil, "the policy may keep or change rbac.authorization.k8s.io/rolebindings"},
		"may not keep them in Monitor, nor by a fault":   {faulty, nil, "the policy may keep or change rbac.authorization.k8s.io/rolebindings"},
		"may keep role bindings that they may update":    {keepsRoles, []rbacv1.PolicyRule{update("rbac.authorization.k8s.io", "rolebindings")}, ""},
		"may keep what they may update, in other groups": {keeps, []rbacv1.PolicyRule{update("", "*"), update("apps", "*")}, ""},
		"may not propagate to what they may not update": {propagates, []rbacv1.PolicyRule{update("", "configmaps"), update("apps", "deployments")},
			"the policy may keep or change apps/statefulsets, which you may not update in namespace NAMESPACE"},
		"may not propagate to what they may update in another group alone": {propagates,
			[]rbacv1.PolicyRule{update("", "configmaps", "deployments", "statefulsets"), update("apps", "statefulsets")},
			"the policy may keep or change apps/deployments, which you may not update in namespace NAMESPACE"},
		"may propagate to what they may update": {propagates,
			[]rbacv1.PolicyRule{update("", "configmaps"), update("apps", "deployments", "statefulsets")}, ""},
		"may not have a module decide about what they may not update": {asks, nil,
			"the policy may keep or change apps/deployments, which you may not update in namespace NAMESPACE"},
		"may have a module decide about what they may update":                    {asks, []rbacv1.PolicyRule{update("apps", "deployments")}, ""},
		"may propagate to as many resources as can be checked":                   {many(20), []rbacv1.PolicyRule{update("example.com", "*")}, ""},
		"may not propagate to the last of as many resources as can be checked":   {many(20), []rbacv1.PolicyRule{update("example.com", first(19)...)}, "example.com/things19"},
		"may not propagate to more resources than can be checked":                {many(21), []rbacv1.PolicyRule{update("example.com", "*")}, "select 20 at most"},
		"may propagate to more resources than can be checked, if they may all":   {many(30), []rbacv1.PolicyRule{update("*", "*")}, ""},
		"may not propagate to more resources with rights in this group and core": {many(30), []rbacv1.PolicyRule{update("example.com", "*"), update("", "*")}, "select 20 at most"},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAuthor(t, gcPolicies)
			a.inNamespace(a.ns, tc.may...)
			a.applies(tc.spec, strings.ReplaceAll(tc.refusal, "NAMESPACE", a.ns))
		})
	}
}

// first names the resources that many selects.
func first(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("things%d", i)
	}
	return names
}

func TestAuthorOfAClusterGCPolicy(t *testing.T) {
	for claim, tc := range map[string]struct {
		spec     string
		anywhere []rbacv1.PolicyRule
		here     []rbacv1.PolicyRule // in one namespace
		refusal  string
	}{
		"may not read as an account that they may not impersonate": {readsElsewhere, nil, []rbacv1.PolicyRule{impersonate("reader")},
			"the policy reads as service account elsewhere/reader, which you may not impersonate"},
		"may read as an account that they may impersonate": {readsElsewhere, []rbacv1.PolicyRule{impersonate("reader"), update("", "configmaps")}, nil, ""},
		"may not propagate to what they may update in one namespace": {propagates, nil,
			[]rbacv1.PolicyRule{update("", "configmaps"), update("apps", "*")},
			"the policy may keep or change /configmaps, which you may not update in all namespaces"},
		"may propagate to what they may update in all namespaces": {propagates,
			[]rbacv1.PolicyRule{update("", "configmaps"), update("apps", "*")}, nil, ""},
		"may not have a module decide about everything": {asksAboutAll, []rbacv1.PolicyRule{update("", "*"), update("apps", "*")}, nil,
			"the policy may keep or change */*, which you may not update in all namespaces"},
		"may have a module decide about everything if they may update everything": {asksAboutAll, []rbacv1.PolicyRule{update("*", "*")}, nil, ""},
		"may not keep what they may update in one namespace": {keepsRoles, nil, []rbacv1.PolicyRule{update("rbac.authorization.k8s.io", "*")},
			"the policy may keep or change rbac.authorization.k8s.io/rolebindings, which you may not update in all namespaces"},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAuthor(t, clusterGCPolicies)
			a.anywhere(tc.anywhere...)
			a.inNamespace(a.ns, tc.here...)
			a.applies(tc.spec, tc.refusal)
		})
	}
}

func TestAuthorOfAChange(t *testing.T) {
	a := newAuthor(t, gcPolicies)
	if _, err := a.policies(a.admin).Create(t.Context(), a.policy(reads), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.inNamespace(a.ns, update("", "configmaps"))
	patch := func(body string) error {
		_, err := a.policies(a.as).Patch(t.Context(), "policy", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	t.Run("needs the rights of what the policy is from now on", func(t *testing.T) {
		a.refused("which you may not impersonate", func() error { return patch(`{"spec": {"mode": "Enforce"}}`) })
		a.refused("which you may not impersonate", func() error { return patch(`{"spec": {"priority": 1}}`) })
	})
	t.Run("needs none for labels", func(t *testing.T) {
		a.accepted(func() error { return patch(`{"metadata": {"labels": {"a": "b"}}}`) })
	})
	t.Run("needs none to take the account out", func(t *testing.T) {
		a.accepted(func() error { return patch(`{"spec": {"serviceAccount": null}}`) })
	})
}

func TestAuthors_AreCheckedByExpressionsThatFitTheTypes(t *testing.T) {
	client := dynamic.NewForConfigOrDie(installed(t).RESTConfig()).Resource(schema.GroupVersionResource{
		Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies",
	})
	devtest.Eventually(t, patience, func() error {
		policy, err := client.Get(t.Context(), "gleaner-policy-authors", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if seen, _, err := unstructured.NestedInt64(policy.Object, "status", "observedGeneration"); err != nil || seen != policy.GetGeneration() {
			return fmt.Errorf("its expressions have not been looked at: %w", err)
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
	}
)

// inForce waits once for the API server to ask whether authors may.
var inForce sync.Once

// author is somebody who may write policies or finalizers, and at first nothing else.
type author struct {
	*world
	admin, as *rest.Config
	user      string
	resource  schema.GroupVersionResource
}

func newAuthor(t *testing.T, resource schema.GroupVersionResource) *author {
	t.Helper()
	admin := installed(t).RESTConfig()
	a := plainAuthor(newWorld(t, admin), admin, resource)
	inForce.Do(func() {
		stranger := plainAuthor(newWorld(t, admin), admin, gcPolicies)
		stranger.refused("which you may not impersonate", func() error { return stranger.create(reads) })
	})
	return a
}

func plainAuthor(w *world, admin *rest.Config, resource schema.GroupVersionResource) *author {
	w.Helper()
	a := &author{world: w, admin: admin, as: rest.CopyConfig(admin), user: "author-of-" + w.ns, resource: resource}
	a.as.Impersonate.UserName = a.user
	a.anywhere(rbacv1.PolicyRule{APIGroups: []string{resource.Group}, Resources: []string{resource.Resource}, Verbs: []string{"create", "get", "patch"}})
	return a
}

func (a *author) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: a.user}}
}

// anywhere gives the author rights in all namespaces.
func (a *author) anywhere(rules ...rbacv1.PolicyRule) {
	a.Helper()
	role, err := a.kube.RbacV1().ClusterRoles().Create(a.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: a.ns + "-"}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	a.bind(role.Name, a.subjects()[0])
}

// inNamespace gives the author rights in one namespace.
func (a *author) inNamespace(namespace string, rules ...rbacv1.PolicyRule) {
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
	if a.resource == gcPolicies || a.resource == finalizers {
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

// create tries to create a policy, and leaves nothing behind.
func (a *author) create(spec string) error {
	_, err := a.policies(a.as).Create(a.Context(), a.policy(spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// applies creates a policy, which is accepted or refused.
func (a *author) applies(spec, refusal string) {
	a.Helper()
	if refusal == "" {
		a.accepted(func() error { return a.create(spec) })
		return
	}
	a.refused(refusal, func() error { return a.create(spec) })
}

// accepted waits, as for rights that the API server has not heard of yet.
func (a *author) accepted(try func() error) {
	a.Helper()
	devtest.Eventually(a, patience, try)
}

// refused waits, as accepted does, for the one refusal that is meant.
func (a *author) refused(why string, try func() error) {
	a.Helper()
	devtest.Eventually(a, patience, func() error {
		err := try()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("not refused since %q: %w", why, err)
		}
		return nil
	})
}
