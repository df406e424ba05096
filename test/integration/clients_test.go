package integration

import (
	"context"
	"encoding/json"
	"os/exec"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/integration/hook"
)

// The requested propagation policy decides whether a policy is evaluated (propagate): an explicit
// Foreground or Orphan is respected; an explicit Background counts as no request.
func TestA12_A14_PropagationPolicyOfEachClient(t *testing.T) {
	w := newEnv(t)
	var mu sync.Mutex // covers sent
	sent := map[string]string{}
	hook.Serve(w, devtest.Shared(w), hook.Options{
		Namespace: w.ns, Operations: []registrationv1.OperationType{registrationv1.Delete}, Resources: []string{"configmaps"},
		Review: func(_ context.Context, r *admissionv1.AdmissionRequest) *metav1.Status {
			var options metav1.DeleteOptions
			var before unstructured.Unstructured
			if err := json.Unmarshal(r.Options.Raw, &options); err != nil {
				t.Error(err)
			}
			if err := before.UnmarshalJSON(r.OldObject.Raw); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			sent[before.GetName()] = string(ptr.Deref(options.PropagationPolicy, "none"))
			return nil
		},
	})
	config := devtest.Shared(w).RESTConfig()
	owner := w.create(objectSpec{name: "owner"})
	collected := w.create(objectSpec{name: "by-the-collector", owners: ownerRefs(owner)})
	w.waitForGraph(owner, collected)

	w.create(objectSpec{name: "by-kubectl"})
	binaries, err := devcluster.Build(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	kubectl := exec.CommandContext(t.Context(), binaries.Kubectl, "--kubeconfig", devtest.Shared(w).Kubeconfig(), "delete", "configmap", "by-kubectl", "-n", w.ns)
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	plain, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Delete(t.Context(), w.create(objectSpec{name: "by-controller-runtime"})); err != nil {
		t.Fatal(err)
	}
	w.delete(owner, background)
	w.waitForDeletion(collected)
	last := w.create(objectSpec{name: "by-the-namespace"})
	if err := kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().Delete(t.Context(), w.ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitForDeletion(last)
	want := map[string]string{
		"by-kubectl": "Background", "by-controller-runtime": "none", "by-the-collector": "Background", "by-the-namespace": "Background", "owner": "Background",
	}
	mu.Lock()
	defer mu.Unlock()
	for name := range sent {
		if _, expected := want[name]; !expected {
			delete(sent, name) // the objects in every namespace, and the webhook's probe
		}
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
}
