package deploy

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Finalizers that require permissions of their authors.
const (
	handleSpec = `
resources: [{apiGroups: [""], resources: [configmaps]}, {apiGroups: [apps], resources: [deployments]}]
module: {name: any}`
	attachSpec = handleSpec + `
attach: true`
	actSpec = handleSpec + `
serviceAccount: {name: finalizer}
grants: {http: [{url: "https://s3.example.com/*", methods: [DELETE]}]}`

	handleAnywhereSpec = handleSpec + `
finalizer: example.com/bucket`
	actElsewhereSpec = handleAnywhereSpec + `
serviceAccount: {namespace: elsewhere, name: finalizer}
grants: {write: [{apiGroups: [""], resources: [secrets], verbs: [delete], namespaces: ["*"]}]}`
)

func TestAuthor_OfAFinalizer(t *testing.T) {
	for claim, tc := range map[string]struct {
		spec    string
		may     []rbacv1.PolicyRule
		refusal string // "": accepted
	}{
		"may not act as an account that they may not impersonate": {actSpec, nil,
			"the finalizer acts as service account NAMESPACE/finalizer, which you may not impersonate"},
		"may not act as an account other than the one that they may impersonate": {actSpec, []rbacv1.PolicyRule{impersonate("other")},
			"the finalizer acts as service account NAMESPACE/finalizer, which you may not impersonate"},
		"may act as an account that they may impersonate":           {actSpec, []rbacv1.PolicyRule{impersonate("finalizer")}, ""},
		"needs no permissions to serve a finalizer that others add": {handleSpec, nil, ""},
		"may not attach it to what they may not update": {attachSpec, []rbacv1.PolicyRule{update("", "configmaps", "deployments")},
			"the finalizer may write to apps/deployments, which you may not update in namespace NAMESPACE"},
		"may attach it to what they may update": {attachSpec, []rbacv1.PolicyRule{update("", "configmaps"), update("apps", "deployments")}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAuthor(t, finalizers)
			a.grantInNamespace(a.ns, tc.may...)
			a.expectApply(tc.spec, strings.ReplaceAll(tc.refusal, "NAMESPACE", a.ns))
		})
	}
}

// A ClusterFinalizer removes finalizers that others may have added, which lets
// the objects be deleted; so it needs permission to update them even to serve it.
func TestAuthor_OfAClusterFinalizer(t *testing.T) {
	may := []rbacv1.PolicyRule{update("", "configmaps"), update("apps", "deployments")}
	for claim, tc := range map[string]struct {
		spec     string
		anywhere []rbacv1.PolicyRule
		here     []rbacv1.PolicyRule // in one namespace
		refusal  string
	}{
		"may not act as an account that they may not impersonate there": {actElsewhereSpec, may, []rbacv1.PolicyRule{impersonate("finalizer")},
			"the finalizer acts as service account elsewhere/finalizer, which you may not impersonate"},
		"may act as an account that they may impersonate": {actElsewhereSpec, append([]rbacv1.PolicyRule{impersonate("finalizer")}, may...), nil, ""},
		"may not serve what they may update in one namespace": {handleAnywhereSpec, nil, may,
			"the finalizer may write to /configmaps, which you may not update in all namespaces"},
		"may serve what they may update in all namespaces":     {handleAnywhereSpec, may, nil, ""},
		"may not attach it to what they may update in part":    {handleAnywhereSpec + "\nattach: true", may[:1], nil, "the finalizer may write to apps/deployments"},
		"may attach it to what they may update in all of them": {handleAnywhereSpec + "\nattach: true", may, nil, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAuthor(t, clusterFinalizers)
			a.grantEverywhere(tc.anywhere...)
			a.grantInNamespace(a.ns, tc.here...)
			a.expectApply(tc.spec, tc.refusal)
		})
	}
}

func TestAuthor_OfAChangeToAFinalizer(t *testing.T) {
	a := newAuthor(t, finalizers)
	if _, err := a.policies(a.admin).Create(t.Context(), a.policy(actSpec), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(body string) error {
		_, err := a.policies(a.as).Patch(t.Context(), "policy", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	t.Run("needs the permissions for the new finalizer", func(t *testing.T) {
		a.waitForRefused("which you may not impersonate", func() error { return patch(`{"spec": {"settings": {"bucket": "all"}}}`) })
	})
	t.Run("needs no permissions for its own metadata.finalizers", func(t *testing.T) {
		a.waitForAccepted(func() error { return patch(`{"metadata": {"finalizers": []}}`) })
	})
	t.Run("needs no permissions to remove grants", func(t *testing.T) {
		a.waitForAccepted(func() error { return patch(`{"spec": {"serviceAccount": null, "grants": null}}`) })
	})
	t.Run("needs permission to update for attach", func(t *testing.T) {
		a.waitForRefused("which you may not update", func() error { return patch(`{"spec": {"attach": true}}`) })
	})
}
