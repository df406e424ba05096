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

// holding has the API server place holds as Secrets are created.
const holding = `
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: NAMESPACE}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`

// keeping keeps what has lost its owners, if it is shown that it is to be kept.
const keeping = `
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

func TestPolicies_AreCarriedOutByTheServiceAccount(t *testing.T) {
	cluster := installed(t)
	w := newWorld(t, cluster.RESTConfig())
	o := startOperator(t, cluster)
	o.ready("/readyz")

	t.Run("which has holds placed at creation", func(t *testing.T) {
		w.apply(cluster, holding, "clustergcpolicy/"+w.ns)
		var made int
		devtest.Eventually(t, patience, func() error {
			made++
			secret, err := w.kube.CoreV1().Secrets(w.ns).Create(t.Context(),
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("owner-%d", made)}}, metav1.CreateOptions{})
			if err == nil && !slices.Contains(secret.Finalizers, graph.Hold) {
				err = errors.New("a Secret was created without a hold")
			}
			return err
		})
		kubectl(t, cluster, "delete", "clustergcpolicy", w.ns)
		devtest.Eventually(t, patience, func() error { // and no Secret is left with one
			policies, err := w.kube.AdmissionregistrationV1().MutatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
			if err == nil && len(policies.Items) != 0 {
				err = fmt.Errorf("%d admission policies are left", len(policies.Items))
			}
			secrets, listed := w.kube.CoreV1().Secrets(w.ns).List(t.Context(), metav1.ListOptions{})
			for _, s := range secrets.Items {
				if slices.Contains(s.Finalizers, graph.Hold) {
					listed = fmt.Errorf("%s is held", s.Name)
				}
			}
			return errors.Join(err, listed)
		})
	})

	t.Run("which reads as the account of the policy", func(t *testing.T) {
		w.apply(cluster, keeping, "-n", w.ns, "gcpolicy/keeping")
		owner := w.make("owner", w.ns)
		kept := w.make("kept", w.ns, owner)
		kept.Data = map[string]string{"keep": "yes"}
		if _, err := w.kube.CoreV1().ConfigMaps(w.ns).Update(t.Context(), kept, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		goes := w.make("goes", w.ns, owner)
		if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.eventually(goes, func(live *corev1.ConfigMap) bool { return live == nil })
		w.eventually(kept, func(live *corev1.ConfigMap) bool { return live != nil && len(live.OwnerReferences) == 0 })
	})

	if strings.Contains(strings.ToLower(o.log.String()), "forbidden") {
		t.Error("something is forbidden: see its log")
	}
}

// apply applies a text, with the digests of its modules, and waits until the policy in it
// is in force.
func (w *world) apply(cluster *devcluster.Cluster, text string, policy ...string) {
	w.Helper()
	w.applyUnpinned(cluster, pins.Manifest(strings.ReplaceAll(text, "NAMESPACE", w.ns)), policy...)
}

// applyUnpinned is for policies that no module decides for, or that the API server does
// not let name a digest.
func (w *world) applyUnpinned(cluster *devcluster.Cluster, text string, policy ...string) {
	w.Helper()
	path := filepath.Join(w.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "NAMESPACE", w.ns)), 0o600); err != nil {
		w.Fatal(err)
	}
	kubectl(w.T, cluster, "apply", "-f", path)
	kubectl(w.T, cluster, append([]string{"wait", "--for=condition=Enforcing", "--timeout=" + patience.String()}, policy...)...)
}
