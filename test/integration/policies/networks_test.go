package policies

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// The networks of pods and Services have public addresses in some clusters. The operator
// discovers them.
func TestTenants_CannotReachClusterNetworks_WithPublicRanges(t *testing.T) {
	w := newEnv(t)
	client, err := kubernetes.NewForConfig(devtest.Shared(t).RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "public-" + w.ns},
		Spec:       corev1.NodeSpec{PodCIDR: "198.51.100.0/24", PodCIDRs: []string{"198.51.100.0/24"}},
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), node.Name, metav1.DeleteOptions{}) // best effort: the control plane ends soon
	})
	module := w.applyPolicy(`
kind: PolicyModule
metadata: {name: elsewhere}
spec: {wasm: {url: "https://198.51.100.7/a.wasm"}}`)
	w.waitForCondition(module, "Fetched", metav1.ConditionFalse, "AddressNotAllowed", "198.51.100.7 is private")
	f := w.applyFinalizer("calls", callModule, w.httpSpec("http://198.51.100.8/x", `  - {url: "http://198.51.100.8/*", methods: [DELETE]}`))
	o := w.createWithFinalizers("o", w.finalizerName("calls"))
	w.delete(o)
	w.waitForStuck(f, o, "Failed", "198.51.100.8 is private")
}
