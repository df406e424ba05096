package deploy

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
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

// installRetention adds the component to the shared installation.
var installRetention struct {
	once sync.Once
	err  error
}

// newRetentionAuthor returns an author of retention policies, once the API server checks them.
func newRetentionAuthor(t *testing.T, resource schema.GroupVersionResource) *author {
	t.Helper()
	cluster := sharedInstallation(t)
	installRetention.once.Do(func() {
		folder := t.TempDir()
		copyManifests(t, folder)
		writeFile(t, filepath.Join(folder, "kustomization.yaml"), []byte("components: [gleaner/config/components/retention]\n"), 0o600)
		if _, installRetention.err = cluster.Kubectl(t.Context(), "apply", "-k", folder); installRetention.err != nil {
			return
		}
		unauthorized := plainAuthor(newEnv(t, cluster.RESTConfig()), cluster.RESTConfig(), clusterRetentionPolicies)
		unauthorized.waitForRefused("which you may not list", func() error { return unauthorized.dryRunCreate(retentionSpec("Monitor", "/secrets")) })
		devtest.Eventually(t, timeout, func() error {
			_, err := unauthorized.policies(cluster.RESTConfig()).Create(t.Context(), unauthorized.policy(retentionSpec("Enforce", "/secrets")),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	})
	if installRetention.err != nil {
		t.Fatal(installRetention.err)
	}
	return plainAuthor(newEnv(t, cluster.RESTConfig()), cluster.RESTConfig(), resource)
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
