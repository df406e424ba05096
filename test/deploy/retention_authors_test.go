package deploy

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	retentionPolicies        = schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "retentionpolicies"}
	clusterRetentionPolicies = schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterretentionpolicies"}
)

// retentionSpec returns the spec of a policy in a mode for resources, each written as group/resource.
func retentionSpec(mode string, resources ...string) string {
	rules := make([]string, len(resources))
	for i, r := range resources {
		group, resource, _ := strings.Cut(r, "/")
		rules[i] = fmt.Sprintf("{apiGroups: [%q], resources: [%s]}", group, resource)
	}
	return fmt.Sprintf("{mode: %s, keepLast: 3, resources: [%s]}", mode, strings.Join(rules, ", "))
}

var retentionComponent = component{
	name: "retention", cluster: clusterRetentionPolicies, refused: retentionSpec("Monitor", "/secrets"), refusal: "which you may not list",
	accepted: retentionSpec("Enforce", "/secrets"),
}

// newRetentionAuthor returns an author of retention policies, once the API server checks them.
func newRetentionAuthor(t *testing.T, resource schema.GroupVersionResource) *author {
	t.Helper()
	return retentionComponent.author(t, resource)
}

func TestAuthor_OfARetentionPolicy(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprint("example.com/things", i))
	}
	for claim, tc := range map[string]struct {
		spec    string
		may     []rbacv1.PolicyRule
		refusal string // "": accepted
	}{
		"may not remove what they may not delete": {retentionSpec("Enforce", "/configmaps", "batch/jobs"), []rbacv1.PolicyRule{verbs("", []string{"*"}, "list", "delete"), verbs("batch", []string{"jobs"}, "get", "list")},
			"the retention policy selects batch/jobs, which you may not delete in namespace NAMESPACE"},
		"may remove what they may delete":         {retentionSpec("Enforce", "/configmaps", "batch/jobs"), []rbacv1.PolicyRule{verbs("", []string{"*"}, "delete"), verbs("batch", []string{"jobs"}, "delete")}, ""},
		"may monitor what they may list":          {retentionSpec("Monitor", "/secrets"), []rbacv1.PolicyRule{verbs("", []string{"secrets"}, "list")}, ""},
		"may not see names that they may not":     {retentionSpec("Monitor", "/secrets"), []rbacv1.PolicyRule{verbs("", []string{"secrets"}, "get")}, "/secrets, which you may not list in namespace NAMESPACE"},
		"may remove as many kinds as are checked": {retentionSpec("Enforce", many...), []rbacv1.PolicyRule{verbs("example.com", []string{"*"}, "delete")}, ""},
		"may not remove the last of them":         {retentionSpec("Enforce", many...), []rbacv1.PolicyRule{verbs("example.com", firstResources(19), "delete")}, "example.com/things19"},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newRetentionAuthor(t, retentionPolicies)
			a.grantInNamespace(a.ns, tc.may...)
			a.expectApply(tc.spec, strings.ReplaceAll(tc.refusal, "NAMESPACE", a.ns))
		})
	}
}

func TestAuthor_OfAClusterRetentionPolicy(t *testing.T) {
	a := newRetentionAuthor(t, clusterRetentionPolicies)
	a.grantInNamespace(a.ns, verbs("", []string{"secrets"}, "list", "delete"))
	a.expectApply(retentionSpec("Enforce", "/secrets"), "which you may not delete in all namespaces")
	a = newRetentionAuthor(t, clusterRetentionPolicies)
	a.grantEverywhere(verbs("", []string{"secrets"}, "delete"))
	a.expectApply(retentionSpec("Enforce", "/secrets"), "")
}

// Who may only list can't have a policy enforced, and may change its labels.
func TestAuthor_OfAChangedRetentionPolicy(t *testing.T) {
	a := newRetentionAuthor(t, retentionPolicies)
	if _, err := a.policies(a.admin).Create(t.Context(), a.policy(retentionSpec("Monitor", "/secrets")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.grantInNamespace(a.ns, verbs("", []string{"secrets"}, "list"))
	patch := func(body string) error {
		_, err := a.policies(a.as).Patch(t.Context(), "policy", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	a.waitForAccepted(func() error { return patch(`{"spec": {"keepLast": 4}}`) })
	a.waitForRefused("which you may not delete", func() error { return patch(`{"spec": {"mode": "Enforce"}}`) })
	a.waitForAccepted(func() error { return patch(`{"metadata": {"labels": {"a": "b"}}}`) })
}

func TestRetentionAuthor_ExpressionsMatchTheSchemas(t *testing.T) {
	newRetentionAuthor(t, retentionPolicies)
	expectTypeChecked(t, "gleaner-retention-authors")
}
