package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/run"
)

// collectorUser is the user name of the built-in collector.
const collectorUser = "system:serviceaccount:kube-system:generic-garbage-collector"

// runCompanion runs Gleaner in companion mode until the test ends,
// with a policy that is evaluated for each Pod.
func runCompanion(t *testing.T) *env {
	t.Helper()
	startCluster(t)
	restartControllerManager(t, "*")
	t.Cleanup(func() { restartControllerManager(t, devcluster.WithoutCollector()...) })
	w := runOperator(t, func(o *run.Options) {
		o.Companion, o.CanaryTimeout, o.Collector = true, 10*time.Second, companion.Collector{User: collectorUser}
	})
	w.applyAndWait()
	return w
}

// With -short, notShort skips the test of a disruption: it is tested in primary mode.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("with -short, this is tested in primary mode only: make test-release runs it")
	}
}

// restartControllerManager restarts the controller manager with other controllers. It may be called in a cleanup.
func restartControllerManager(t *testing.T, controllers ...string) {
	t.Helper()
	if err := shared.cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if err := shared.cluster.StartControllerManager(context.WithoutCancel(t.Context()), controllers...); err != nil {
		t.Fatal(err)
	}
}

// applyAndWait applies a policy that allows the built-in collector's deletes of Pods, and waits until
// it is enforced.
func (w *env) applyAndWait() {
	w.Helper()
	w.applyPolicy("pods", map[string]any{
		"resources": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}}},
		"fixed":     map[string]any{"collect": map[string]any{"decision": "Delete"}},
		"mode":      "Enforce", "onFault": "Hold",
	})
}

// applyPolicy applies a policy, and waits until it is enforced.
func (w *env) applyPolicy(name string, spec map[string]any) {
	w.Helper()
	policies := dynamic.NewForConfigOrDie(shared.cluster.RESTConfig()).
		Resource(schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "gcpolicies"}).Namespace(w.ns)
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gleaner.dev/v1alpha1", "kind": "GCPolicy", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	if _, err := policies.Create(w.Context(), policy, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	devtest.Eventually(w, timeout, func() error {
		live, err := policies.Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Enforcing" && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("policy is not enforced: %v", conditions)
	})
}

func TestScenario55_G58_Companion_DeploymentWaitsForContainers(t *testing.T) {
	w := runCompanion(t)
	made := w.createWorkload()
	w.testForeground(made, collectorUser)
}

func TestScenario53_G49_Companion_PodsOutliveTheirDeployment(t *testing.T) {
	w := runCompanion(t)
	made := w.createWorkload()
	w.testBackground(made, collectorUser)
}
