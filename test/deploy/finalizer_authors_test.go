package deploy

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Finalizers that make use of rights.
const (
	serves = `
resources: [{apiGroups: [""], resources: [configmaps]}, {apiGroups: [apps], resources: [deployments]}]
module: {name: any}`
	attaches = serves + `
attach: true`
	acts = serves + `
serviceAccount: {name: finalizer}
grants: {http: [{url: "https://s3.example.com/*", methods: [DELETE]}]}`

	servesAnywhere = serves + `
finalizer: example.com/bucket`
	actsElsewhere = servesAnywhere + `
serviceAccount: {namespace: elsewhere, name: finalizer}
grants: {write: [{apiGroups: [""], resources: [secrets], verbs: [delete], namespaces: ["*"]}]}`
)

func TestAuthorOfAFinalizer(t *testing.T) {
	for claim, tc := range map[string]struct {
		spec    string
		may     []rbacv1.PolicyRule
		refusal string // "" if it is accepted
	}{
		"may not act as an account that they may not impersonate": {acts, nil,
			"the finalizer acts as service account NAMESPACE/finalizer, which you may not impersonate"},
		"may not act as an account other than the one that they may impersonate": {acts, []rbacv1.PolicyRule{impersonate("other")},
			"the finalizer acts as service account NAMESPACE/finalizer, which you may not impersonate"},
		"may act as an account that they may impersonate":                    {acts, []rbacv1.PolicyRule{impersonate("finalizer")}, ""},
		"needs no right to serve a finalizer where somebody else has put it": {serves, nil, ""},
		"may not attach it to what they may not update": {attaches, []rbacv1.PolicyRule{update("", "configmaps", "deployments")},
			"the finalizer may write to apps/deployments, which you may not update in namespace NAMESPACE"},
		"may attach it to what they may update": {attaches, []rbacv1.PolicyRule{update("", "configmaps"), update("apps", "deployments")}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAuthor(t, finalizers)
			a.inNamespace(a.ns, tc.may...)
			a.applies(tc.spec, strings.ReplaceAll(tc.refusal, "NAMESPACE", a.ns))
		})
	}
}

// A ClusterFinalizer takes a finalizer off that somebody else may have put there,
// and so the objects go; so it takes the right to update them even to serve it.
func TestAuthorOfAClusterFinalizer(t *testing.T) {
	may := []rbacv1.PolicyRule{update("", "configmaps"), update("apps", "deployments")}
	for claim, tc := range map[string]struct {
		spec     string
		anywhere []rbacv1.PolicyRule
		here     []rbacv1.PolicyRule // in one namespace
		refusal  string
	}{
		"may not act as an account that they may not impersonate there": {actsElsewhere, may, []rbacv1.PolicyRule{impersonate("finalizer")},
			"the finalizer acts as service account elsewhere/finalizer, which you may not impersonate"},
		"may act as an account that they may impersonate": {actsElsewhere, append([]rbacv1.PolicyRule{impersonate("finalizer")}, may...), nil, ""},
		"may not serve what they may update in one namespace": {servesAnywhere, nil, may,
			"the finalizer may write to /configmaps, which you may not update in all namespaces"},
		"may serve what they may update in all namespaces":     {servesAnywhere, may, nil, ""},
		"may not attach it to what they may update in part":    {servesAnywhere + "\nattach: true", may[:1], nil, "the finalizer may write to apps/deployments"},
		"may attach it to what they may update in all of them": {servesAnywhere + "\nattach: true", may, nil, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newAuthor(t, clusterFinalizers)
			a.anywhere(tc.anywhere...)
			a.inNamespace(a.ns, tc.here...)
			a.applies(tc.spec, tc.refusal)
		})
	}
}

func TestAuthorOfAChangeToAFinalizer(t *testing.T) {
	a := newAuthor(t, finalizers)
	if _, err := a.policies(a.admin).Create(t.Context(), a.policy(acts), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(body string) error {
		_, err := a.policies(a.as).Patch(t.Context(), "policy", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	t.Run("needs the rights of what it is from now on", func(t *testing.T) {
		a.refused("which you may not impersonate", func() error { return patch(`{"spec": {"settings": {"bucket": "all"}}}`) })
	})
	t.Run("needs none for the finalizers that keep it", func(t *testing.T) {
		a.accepted(func() error { return patch(`{"metadata": {"finalizers": []}}`) })
	})
	t.Run("needs none to take out what it may do", func(t *testing.T) {
		a.accepted(func() error { return patch(`{"spec": {"serviceAccount": null, "grants": null}}`) })
	})
	t.Run("needs the right to update for attach", func(t *testing.T) {
		a.refused("which you may not update", func() error { return patch(`{"spec": {"attach": true}}`) })
	})
}
