package permissions

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
)

func resourcesOf(t *testing.T, manifests ...string) *finalizers.Resources {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, m := range manifests {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(m), o); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	b, err := finalizers.FromObjects(objects)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	frees = `{apiVersion: gleaner.dev/v1alpha1, kind: ClusterGCPolicy, metadata: {name: frees}, spec: {mode: Enforce,
  resources: [{apiGroups: [""], resources: [secrets]}], fixed: {propagate: {decision: Orphan, dependents: [{kind: LimitRange, decision: Delete}]}}}}`
	decides = `{apiVersion: gleaner.dev/v1alpha1, kind: GCPolicy, metadata: {name: decides, namespace: shop}, spec: {mode: Enforce,
  resources: [{apiGroups: [apps], resources: [deployments]}], module: {name: m}, serviceAccount: {name: reader}}}`
	watches = `{apiVersion: gleaner.dev/v1alpha1, kind: ClusterGCPolicy, metadata: {name: watches}, spec: {mode: Monitor,
  resources: [{apiGroups: ["*"], resources: ["*"]}], fixed: {collect: {decision: Orphan}}}}`
	archives = `{apiVersion: gleaner.dev/v1alpha1, kind: ClusterArchivePolicy, metadata: {name: archives}, spec: {
  resources: [{apiGroups: [batch], resources: [jobs]}]}}`
	archivesOwn = `{apiVersion: gleaner.dev/v1alpha1, kind: ClusterArchivePolicy, metadata: {name: archives-own}, spec: {deletedBy: Gleaner,
  resources: [{apiGroups: [batch], resources: [cronjobs]}]}}`
	retains = `{apiVersion: gleaner.dev/v1alpha1, kind: RetentionPolicy, metadata: {name: retains, namespace: ci}, spec: {mode: Enforce, keepLast: 3,
  resources: [{apiGroups: [batch], resources: [jobs]}]}}`
	monitors = `{apiVersion: gleaner.dev/v1alpha1, kind: ClusterRetentionPolicy, metadata: {name: monitors}, spec: {keepLast: 3,
  resources: [{apiGroups: [""], resources: [pods]}]}}`
)

// written are the rules of roles, as "namespace: verb group/resource".
func written(t *testing.T, s Setup, b *finalizers.Resources) map[string]bool {
	t.Helper()
	var out strings.Builder
	Write(&out, s, Required(s, b))
	found := map[string]bool{}
	for document := range strings.SplitSeq(out.String(), "---\n") {
		var role rbacv1.Role
		if err := yaml.UnmarshalStrict([]byte(document), &role); err == nil && len(role.Rules) != 0 {
			for _, r := range role.Rules {
				for _, m := range permissionsOf(Rule{Namespace: role.Namespace, Groups: r.APIGroups, Resources: r.Resources, Names: r.ResourceNames, Verbs: r.Verbs}) {
					found[m.String()] = true
				}
			}
		}
	}
	return found
}

// Taken for the only collector, a companion would be given the right to delete anything.
func TestSetupOf_DetectsCompanion(t *testing.T) {
	for claim, c := range map[string]struct {
		container corev1.Container
		want      bool
	}{
		"in one word":              {corev1.Container{Args: []string{"run", "--collector=companion"}}, true},
		"in two words":             {corev1.Container{Args: []string{"run", "--collector", "companion"}}, true},
		"in the command":           {corev1.Container{Command: []string{"gleaner", "run", "--collector=companion"}}, true},
		"the last one counts":      {corev1.Container{Args: []string{"--collector=companion", "--collector=primary"}}, false},
		"without it it is primary": {corev1.Container{Args: []string{"run"}}, false},
	} {
		t.Run(claim, func(t *testing.T) {
			pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c.container}}}
			if got := SetupOf([]corev1.Pod{pod}).Companion; got != c.want {
				t.Errorf("a companion: %t", got)
			}
		})
	}
}

// config/cert-manager takes the right away, so it is not to be missed. The keys of state
// annotations are a Secret that is created in any case, and never updated.
func TestRequired_NoSecretForExternalCertificate(t *testing.T) {
	for claim, want := range map[string]bool{"--webhook-cert-dir=/certs": false, "--webhook-cert-dir=": true} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "g"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Args: []string{"--collector=companion", claim}}},
		}}
		if got := written(t, SetupOf([]corev1.Pod{pod}), resourcesOf(t))["update secrets in namespace g"]; got != want {
			t.Errorf("%s: a right to update Secrets: %t", claim, got)
		}
	}
}

func TestRequired_CompanionWritesOnlySelected(t *testing.T) {
	s := SetupOf(nil)
	s.Companion, s.Exceptions = true, []schema.GroupResource{{Group: "apps", Resource: "replicasets"}}
	got := written(t, s, resourcesOf(t, frees, decides, watches))
	for right, want := range map[string]bool{
		"watch *.* in all namespaces":                                                     true,
		"delete *.* in all namespaces":                                                    false,
		"patch *.* in all namespaces":                                                     false,
		"delete secrets in all namespaces":                                                true,
		"update */finalizers.* in all namespaces":                                         true,
		"delete limitranges in all namespaces":                                            true,
		"patch deployments.apps in namespace shop":                                        true,
		"patch deployments.apps in all namespaces":                                        false,
		"delete replicasets.apps in namespace shop":                                       true,
		"impersonate serviceaccounts/reader in namespace shop":                            true,
		"impersonate serviceaccounts in all namespaces":                                   false,
		"create secrets in namespace gleaner-system":                                      true,
		"create mutatingadmissionpolicies.admissionregistration.k8s.io in all namespaces": true,
	} {
		if got[right] != want {
			t.Errorf("%s: %t, not %t", right, got[right], want)
		}
	}
}

// What is archived when Gleaner deletes it needs no finalizer.
func TestRequired_CompanionAddsFinalizersOfArchivePolicies(t *testing.T) {
	s := SetupOf(nil)
	s.Companion = true
	got := written(t, s, resourcesOf(t, archives, archivesOwn))
	for right, want := range map[string]bool{
		"patch jobs.batch in all namespaces":                                              true,
		"delete jobs.batch in all namespaces":                                             false,
		"patch cronjobs.batch in all namespaces":                                          false,
		"patch clusterarchivepolicies.gleaner.dev in all namespaces":                      true,
		"patch clusterarchivepolicies/status.gleaner.dev in all namespaces":               true,
		"create mutatingadmissionpolicies.admissionregistration.k8s.io in all namespaces": true,
	} {
		if got[right] != want {
			t.Errorf("%s: %t, not %t", right, got[right], want)
		}
	}
	if written(t, s, resourcesOf(t, archivesOwn))["create mutatingadmissionpolicies.admissionregistration.k8s.io in all namespaces"] {
		t.Error("it may write admission policies, and adds no finalizer")
	}
}

func TestRequired_CompanionDeletesWhatRetentionPoliciesSelect(t *testing.T) {
	s := SetupOf(nil)
	s.Companion = true
	got := written(t, s, resourcesOf(t, retains, monitors))
	for right, want := range map[string]bool{
		"delete jobs.batch in namespace ci":                                   true,
		"delete jobs.batch in all namespaces":                                 false,
		"patch jobs.batch in namespace ci":                                    false,
		"delete pods in all namespaces":                                       false,
		"patch retentionpolicies/status.gleaner.dev in all namespaces":        true,
		"patch clusterretentionpolicies/status.gleaner.dev in all namespaces": true,
	} {
		if got[right] != want {
			t.Errorf("%s: %t, not %t", right, got[right], want)
		}
	}
}

func TestRequired_PrimaryDeletesAnything(t *testing.T) {
	got := written(t, SetupOf(nil), resourcesOf(t))
	want := map[string]bool{
		"get *.* in all namespaces": true, "list *.* in all namespaces": true, "watch *.* in all namespaces": true,
		"patch *.* in all namespaces": true, "delete *.* in all namespaces": true, "update */finalizers.* in all namespaces": true,
		"create events in all namespaces": true, "create tokenreviews.authentication.k8s.io in all namespaces": true,
		"create subjectaccessreviews.authorization.k8s.io in all namespaces": true,
		"create leases.coordination.k8s.io in namespace gleaner-system":      true,
		"update leases.coordination.k8s.io in namespace gleaner-system":      true,
		"create configmaps in namespace gleaner-system":                      true,
		"create secrets in namespace gleaner-system":                         true,
		"update configmaps in namespace gleaner-system":                      true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What is installed by default is for any policy, and so has all that is printed for
// some.
func TestRequired_IsInInstalledRole(t *testing.T) {
	data, err := os.ReadFile("../../../config/rbac/operator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var installed []Rule
	for document := range strings.SplitSeq(string(data), "---\n") {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		for _, r := range role.Rules {
			installed = append(installed, Rule{Namespace: role.Namespace, Groups: r.APIGroups, Resources: r.Resources, Names: r.ResourceNames, Verbs: r.Verbs})
		}
	}
	for _, r := range Required(SetupOf(nil), resourcesOf(t, frees, decides)) {
		for _, verb := range r.Verbs {
			covered := false
			for _, have := range installed {
				covered = covered || have.covers(r, verb)
			}
			if !covered {
				t.Errorf("it has no right to %s %v", verb, r.Resources)
			}
		}
	}
}

func TestRequired_BlockingOnlyInPolicyNamespaces(t *testing.T) {
	s := SetupOf(nil)
	s.Companion = true
	const right, everywhere = "update */finalizers.* in namespace shop", "update */finalizers.* in all namespaces"
	if got := written(t, s, resourcesOf(t, decides)); !got[right] || got[everywhere] {
		t.Errorf("for a policy of a namespace: %v", got)
	}
	if got := written(t, s, resourcesOf(t, watches)); got[right] || got[everywhere] {
		t.Errorf("for a policy in Monitor mode: %v", got)
	}
}
