package deploy

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Archive policies that require permissions of their authors.
const (
	archiveSpec = `
resources: [{apiGroups: ["", apps], resources: [configmaps]}]
ttl: 24h`
	archiveSecretsSpec = `
resources: [{apiGroups: [""], resources: [secrets]}]
deletedBy: Gleaner
recipients: [age1gde3ncmahlqd9gg50tanl99r960llztrhfapnmx853s4tjum03uqfssgdh]`
	archivePodsSpec = `
resources: [{apiGroups: [""], resources: [pods]}]`
	archiveEverythingSpec = `
resources: [{apiGroups: ["*"], resources: ["*"]}]
deletedBy: Gleaner`
)

// archiveManySpec returns an archive policy that selects n resources of one group.
func archiveManySpec(n int) string {
	return "\nresources: [{apiGroups: [example.com], resources: [" + strings.Join(firstResources(n), ", ") + "]}]"
}

var (
	archivePolicies        = schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "archivepolicies"}
	clusterArchivePolicies = schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "clusterarchivepolicies"}
)

func verbs(group string, resources []string, list ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: list}
}

var archiveComponent = component{
	name: "archive", cluster: clusterArchivePolicies, refused: archiveSecretsSpec, refusal: "which you may not get", accepted: archiveSpec,
}

// newArchiveAuthor returns an author of archive policies, once the API server checks them.
func newArchiveAuthor(t *testing.T, resource schema.GroupVersionResource) *author {
	t.Helper()
	return archiveComponent.author(t, resource)
}

func TestAuthor_OfAnArchivePolicy(t *testing.T) {
	configMaps := []string{"configmaps"}
	for claim, tc := range map[string]struct {
		spec    string
		may     []rbacv1.PolicyRule
		refusal string // "": accepted
	}{
		"may not archive what they may not get": {archiveSpec, []rbacv1.PolicyRule{verbs("", configMaps, "get", "update"), verbs("apps", configMaps, "update")},
			"the archive policy stores apps/configmaps, which you may not get in namespace NAMESPACE"},
		"may not have kept what they may not update": {archiveSpec, []rbacv1.PolicyRule{verbs("", configMaps, "get"), verbs("apps", configMaps, "get", "update")},
			"the archive policy may keep /configmaps, which you may not update in namespace NAMESPACE"},
		"may archive what they may get and update": {archiveSpec, []rbacv1.PolicyRule{verbs("", configMaps, "get", "update"), verbs("apps", configMaps, "get", "update")}, ""},
		"may not read Secrets from an archive": {archiveSecretsSpec, []rbacv1.PolicyRule{verbs("", []string{"secrets"}, "update", "list")},
			"the archive policy stores /secrets, which you may not get in namespace NAMESPACE"},
		"need not update what gets no finalizer":       {archiveSecretsSpec, []rbacv1.PolicyRule{verbs("", []string{"secrets"}, "get")}, ""},
		"need not update what never gets a finalizer":  {archivePodsSpec, []rbacv1.PolicyRule{verbs("", []string{"pods"}, "get")}, ""},
		"may archive as many resources as are checked": {archiveManySpec(20), []rbacv1.PolicyRule{verbs("example.com", []string{"*"}, "get", "update")}, ""},
		"may not archive the last of them":             {archiveManySpec(20), []rbacv1.PolicyRule{verbs("example.com", firstResources(19), "get", "update")}, "example.com/things19"},
		"may not have the last of them kept":           {archiveManySpec(20), []rbacv1.PolicyRule{verbs("example.com", []string{"*"}, "get"), verbs("example.com", firstResources(19), "update")}, "may keep example.com/things19"},
		"may not archive more than are checked":        {archiveManySpec(21), []rbacv1.PolicyRule{verbs("example.com", []string{"*"}, "get", "update")}, "select at most 20"},
		"may archive more if they may get all":         {archiveManySpec(30), []rbacv1.PolicyRule{verbs("*", []string{"*"}, "get", "update")}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newArchiveAuthor(t, archivePolicies)
			a.grantInNamespace(a.ns, tc.may...)
			a.expectApply(tc.spec, strings.ReplaceAll(tc.refusal, "NAMESPACE", a.ns))
		})
	}
}

func TestAuthor_OfAClusterArchivePolicy(t *testing.T) {
	all := []rbacv1.PolicyRule{verbs("", []string{"configmaps"}, "get", "update"), verbs("apps", []string{"configmaps"}, "get", "update")}
	for claim, tc := range map[string]struct {
		spec           string
		anywhere, here []rbacv1.PolicyRule
		refusal        string
	}{
		"may not archive what they may get in one namespace": {archiveSpec, nil, all, "which you may not"},
		"may archive what they may get in all namespaces":    {archiveSpec, all, nil, ""},
		"may not archive everything":                         {archiveEverythingSpec, []rbacv1.PolicyRule{verbs("", []string{"*"}, "get")}, nil, "stores */*, which you may not get"},
		"may archive everything if they may get everything":  {archiveEverythingSpec, []rbacv1.PolicyRule{verbs("*", []string{"*"}, "get")}, nil, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			a := newArchiveAuthor(t, clusterArchivePolicies)
			a.grantEverywhere(tc.anywhere...)
			a.grantInNamespace(a.ns, tc.here...)
			a.expectApply(tc.spec, tc.refusal)
		})
	}
}

func TestAuthor_OfAChangedArchivePolicy(t *testing.T) {
	a := newArchiveAuthor(t, archivePolicies)
	if _, err := a.policies(a.admin).Create(t.Context(), a.policy(archiveSpec), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(config *rest.Config, body string) error {
		_, err := a.policies(config).Patch(t.Context(), "policy", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	a.waitForRefused("which you may not", func() error { return patch(a.as, `{"spec": {"ttl": "1h"}}`) }) // get or update: either policy may be first
	a.waitForAccepted(func() error { return patch(a.as, `{"metadata": {"labels": {"a": "b"}}}`) })
	a.waitForRefused("which you may not", func() error {
		return patch(a.as, `{"spec": {"recipients": ["age1gde3ncmahlqd9gg50tanl99r960llztrhfapnmx853s4tjum03uqfssgdh"]}}`)
	})
}

func TestArchiveAuthor_ExpressionsMatchTheSchemas(t *testing.T) {
	newArchiveAuthor(t, archivePolicies)
	for _, name := range []string{"gleaner-archive-readers", "gleaner-archive-authors"} {
		expectTypeChecked(t, name)
	}
}
