package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/veto"
	"github.com/gleaner-dev/gleaner/test/inside"
)

const (
	// builtInUser is whom the built-in collector works as.
	builtInUser = "system:serviceaccount:kube-system:generic-garbage-collector"

	// apiServersSecret is what paths of the webhook begin with.
	apiServersSecret = "only-the-API-server-knows"
)

// companion runs Gleaner as the companion of the built-in collector until the test ends,
// with a policy that it asks about each Pod.
func companion(t *testing.T) *world {
	t.Helper()
	start(t)
	restart(t, "*")
	t.Cleanup(func() { restart(t, noCollector...) })
	config, err := inside.Operator(shared.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := inside.Define(t, config); err != nil {
		t.Fatal(err)
	}
	hook, serve := webhook(t)
	options := inside.Options(config)
	options.Beside, options.Veto, options.CanaryTimeout = true, hook, 10*time.Second
	collector, stop, err := inside.Run(options, serve)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	w := newWorld(t, collector)
	w.enforce()
	return w
}

// restart runs the controller manager with other controllers. It is also for a cleanup.
func restart(t *testing.T, controllers ...string) {
	t.Helper()
	if err := shared.cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if err := shared.cluster.StartControllerManager(context.WithoutCancel(t.Context()), controllers...); err != nil {
		t.Fatal(err)
	}
}

// webhook says how the API server asks the companion, and serves that.
func webhook(t *testing.T) (*modules.Veto, func(*loop.Loop) (manager.Runnable, error)) {
	t.Helper()
	certificate, ca, err := shared.cluster.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().String()
	url := "https://" + address + modules.VetoPath
	hook := &modules.Veto{
		User: builtInUser, Client: admissionv1.WebhookClientConfig{URL: &url}, CA: func() []byte { return ca },
		Secret: func() string { return apiServersSecret },
	}
	ready := make(chan struct{})
	close(ready)
	return hook, func(l *loop.Loop) (manager.Runnable, error) {
		return &veto.Server{
			Address: address, Handler: l.Vetoes(), Ready: ready, Log: ctrl.Log,
			Knows:       func(said string) bool { return said == apiServersSecret },
			Certificate: func() (*tls.Certificate, error) { return &certificate, nil },
		}, nil
	}
}

// enforce has a policy allow what the built-in collector does to Pods, and waits until
// it is asked.
func (w *world) enforce() {
	w.Helper()
	policies := dynamic.NewForConfigOrDie(shared.cluster.RESTConfig()).
		Resource(schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "gcpolicies"}).Namespace(w.ns)
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gleaner.dev/v1alpha1", "kind": "GCPolicy", "metadata": map[string]any{"name": "pods"},
		"spec": map[string]any{
			"resources": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"pods"}}},
			"fixed":     map[string]any{"collect": map[string]any{"decision": "Delete"}},
			"mode":      "Enforce", "onFault": "Hold",
		},
	}}
	if _, err := policies.Create(w.Context(), policy, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	devtest.Eventually(w, timeout, func() error {
		live, err := policies.Get(w.Context(), "pods", metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Enforcing" && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("the policy is not enforced: %v", conditions)
	})
}

func TestScenario55_G58_Companion_ADeploymentWaitsForContainers(t *testing.T) {
	w := companion(t)
	made := w.deploy()
	w.foregroundWaits(made, builtInUser)
}

func TestScenario53_G49_Companion_PodsOutliveTheirDeployment(t *testing.T) {
	w := companion(t)
	made := w.deploy()
	w.backgroundDoesNot(made, builtInUser)
}
