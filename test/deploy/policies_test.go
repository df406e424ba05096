package deploy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/test/pins"
)

// holdPolicies is a policy whose holds are added when Secrets are created.
const holdPolicies = `
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: NAMESPACE}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`

// keepPolicies keeps ownerless objects, depending on the content of a Secret.
const keepPolicies = `
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: keeping, namespace: NAMESPACE}
spec:
  rego:
    inline: |
      package gleaner
      default collect := {"decision": "Delete"}
      collect := {"decision": "Orphan"} if input.object.data.keep == "yes"
---
apiVersion: gleaner.dev/v1alpha1
kind: GCPolicy
metadata: {name: keeping, namespace: NAMESPACE}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: keeping}
  serviceAccount: {name: reader}
  mode: Enforce
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NAMESPACE}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: NAMESPACE}]`

func TestPolicies_AreEnforcedByTheServiceAccount(t *testing.T) {
	cluster := sharedInstallation(t)
	w := newEnv(t, cluster.RESTConfig())
	o := startOperator(t, cluster)
	o.waitUntilReady("/readyz")

	t.Run("with holds added at creation", func(t *testing.T) {
		if !hasMutatingPolicies(w) {
			t.Skip("the API server has no MutatingAdmissionPolicies, and the operator no webhook")
		}
		w.apply(cluster, holdPolicies, "clustergcpolicy/"+w.ns)
		var made int
		devtest.Eventually(t, timeout, func() error {
			made++
			secret, err := w.kube.CoreV1().Secrets(w.ns).Create(t.Context(),
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("owner-%d", made)}}, metav1.CreateOptions{})
			if err == nil && !slices.Contains(secret.Finalizers, graph.Hold) {
				err = errors.New("Secret was created without a hold")
			}
			return err
		})
		kubectl(t, cluster, "delete", "clustergcpolicy", w.ns)
		devtest.Eventually(t, timeout, func() error { // no Secret keeps a hold
			policies, err := w.kube.AdmissionregistrationV1().MutatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
			if err == nil && len(policies.Items) != 0 {
				err = fmt.Errorf("%d admission policies are left", len(policies.Items))
			}
			secrets, listed := w.kube.CoreV1().Secrets(w.ns).List(t.Context(), metav1.ListOptions{})
			for _, s := range secrets.Items {
				if slices.Contains(s.Finalizers, graph.Hold) {
					listed = fmt.Errorf("%s has a hold", s.Name)
				}
			}
			return errors.Join(err, listed)
		})
	})

	t.Run("which reads as the policy's service account", func(t *testing.T) {
		w.apply(cluster, keepPolicies, "-n", w.ns, "gcpolicy/keeping")
		owner := w.create("owner", w.ns)
		kept := w.create("kept", w.ns, owner)
		kept.Data = map[string]string{"keep": "yes"}
		if _, err := w.kube.CoreV1().ConfigMaps(w.ns).Update(t.Context(), kept, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		goes := w.create("goes", w.ns, owner)
		if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.waitForObject(goes, func(live *corev1.ConfigMap) bool { return live == nil })
		w.waitForObject(kept, func(live *corev1.ConfigMap) bool { return live != nil && len(live.OwnerReferences) == 0 })
	})

	if strings.Contains(strings.ToLower(o.process.Log.String()), "forbidden") {
		t.Error("a request was forbidden: see the operator's log")
	}
}

// apply applies a text, with the digests of its modules, and waits until its policy
// is in force.
func (w *env) apply(cluster *devcluster.Cluster, text string, policy ...string) {
	w.Helper()
	w.applyUnpinned(cluster, pins.Manifest(strings.ReplaceAll(text, "NAMESPACE", w.ns)), policy...)
}

// applyUnpinned is like apply for policies without a module, or without a
// digest field.
func (w *env) applyUnpinned(cluster *devcluster.Cluster, text string, policy ...string) {
	w.Helper()
	path := filepath.Join(w.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "NAMESPACE", w.ns)), 0o600); err != nil {
		w.Fatal(err)
	}
	kubectl(w.T, cluster, "apply", "-f", path)
	kubectl(w.T, cluster, append([]string{"wait", "--for=condition=Enforcing", "--timeout=" + timeout.String()}, policy...)...)
}
