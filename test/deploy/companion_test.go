package deploy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const (
	companion = "../../config/companion"

	keepsAll = `{"apiVersion":"gleaner.dev/v1alpha1","kind":"ClusterGCPolicy","metadata":{"name":"keep"},"spec":{
  "resources":[{"apiGroups":[""],"resources":["configmaps"]}],"fixed":{"collect":{"decision":"Orphan"}},"mode":"Enforce"}}`
)

// A Service needs a network, which there is none of here: the API server is told of a
// URL in its place.
func TestCompanion_WorksAsItsServiceAccountAndLeavesNoWebhookBehind(t *testing.T) {
	if err := readSources(companion, ".yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, cluster, "apply", "-k", companion)
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	o := startOperator(t, cluster, "--webhook-bind-address="+address, "--webhook-url=https://localhost:"+port+"/veto")
	o.ready("/healthz", "/readyz")
	policy := t.TempDir() + "/policy.json"
	if err := os.WriteFile(policy, []byte(keepsAll), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, cluster, "apply", "-f", policy)
	kubectl(t, cluster, "wait", "clustergcpolicies/keep", "--for=condition=Enforcing", "--timeout", patience.String())

	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	namespaced := client.CoreV1().ConfigMaps(devtest.Namespace(t, cluster.RESTConfig()))
	owner, err := namespaced.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := namespaced.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := namespaced.Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, patience, func() error {
		kept, err := namespaced.Get(t.Context(), "kept", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			t.Fatal("it was not kept")
		}
		if err == nil && len(kept.OwnerReferences) != 0 {
			err = errors.New("it still names its owner")
		}
		return err
	})
	if strings.Contains(strings.ToLower(o.log.String()), "forbidden") {
		t.Error("something is forbidden: see its log")
	}

	// In the wrong order: the operator goes first, and its policies stay behind.
	o.stop()
	kubectl(t, cluster, "delete", "namespace", namespace)
	devtest.Eventually(t, patience, func() error {
		_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "gleaner-veto", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the webhook's configuration is still there: %w", err)
		}
		return nil
	})
}
