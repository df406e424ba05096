package process

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// companionEnv is a control plane with the built-in collector, and a companion that can be
// restarted, always at the same address.
type companionEnv struct {
	*env
	cluster  *devcluster.Cluster
	address  string
	operator *operator
}

func newCompanionEnv(t *testing.T) *companionEnv {
	t.Helper()
	b := newIdleCompanionEnv(t)
	b.startOperator()
	return b
}

// newIdleCompanionEnv is like newCompanionEnv, but does not start the companion.
func newIdleCompanionEnv(t *testing.T) *companionEnv {
	t.Helper()
	if _, err := devcluster.Build(t.Context(), t.Output()); err != nil {
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
	createCRDs(t, cluster.RESTConfig())
	return &companionEnv{env: newEnv(t, cluster), cluster: cluster, address: devtest.FreeAddress(t)}
}

func (b *companionEnv) startOperator(flags ...string) {
	b.Helper()
	b.operator = startReady(b.T, b.cluster, append(b.flags(), flags...)...)
}

func (b *companionEnv) flags() []string {
	_, port, _ := strings.Cut(b.address, ":")
	return []string{"--collector=companion", "--canary-timeout=2s", "--webhook-bind-address=" + b.address, "--webhook-url=https://localhost:" + port + "/veto"}
}

// applyKeepPolicy applies a policy that keeps ConfigMaps, and waits until it is enforced.
func (b *companionEnv) applyKeepPolicy(onFault string) dynamic.ResourceInterface {
	b.Helper()
	policies := dynamic.NewForConfigOrDie(b.cluster.RESTConfig()).
		Resource(schema.GroupVersionResource{Group: "gleaner.dev", Version: "v1alpha1", Resource: "gcpolicies"}).Namespace(b.ns)
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gleaner.dev/v1alpha1", "kind": "GCPolicy", "metadata": map[string]any{"name": "keeps"},
		"spec": map[string]any{
			"resources": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}},
			"fixed":     map[string]any{"collect": map[string]any{"decision": "Orphan"}},
			"mode":      "Enforce", "onFault": onFault,
		},
	}}
	devtest.Eventually(b, timeout, func() error { // the type is served a moment after its definition
		_, err := policies.Create(b.Context(), policy, metav1.CreateOptions{})
		return err
	})
	devtest.Eventually(b, timeout, func() error {
		if _, err := b.webhookConfiguration(); err != nil {
			return err
		}
		live, err := policies.Get(b.Context(), "keeps", metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		for _, c := range list {
			if c := c.(map[string]any); c["type"] == "Enforcing" && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("status: %v", live.Object["status"])
	})
	return policies
}

func (b *companionEnv) webhookConfiguration() (*registrationv1.ValidatingWebhookConfiguration, error) {
	return b.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.Context(), "gleaner-veto", metav1.GetOptions{})
}

// waitForKept waits until an object has no owner references, and checks that it exists.
func (b *companionEnv) waitForKept(o *corev1.ConfigMap) {
	b.Helper()
	devtest.Eventually(b, timeout, func() error {
		live, err := b.kube.CoreV1().ConfigMaps(b.ns).Get(b.Context(), o.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			b.Fatalf("%s is gone", o.Name)
		}
		if err == nil && len(live.OwnerReferences) != 0 {
			err = errors.New("object still has its owner reference")
		}
		return err
	})
}

func TestCompanion_KeepsWhatAPolicyKeeps(t *testing.T) {
	b := newCompanionEnv(t)
	policies := b.applyKeepPolicy("Hold")
	b.waitForKept(b.createOrphan("kept"))
	if err := policies.Delete(t.Context(), "keeps", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() error {
		if _, err := b.webhookConfiguration(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("webhook configuration still exists: %w", err)
		}
		return nil
	})
	b.waitForDeletion(b.createOrphan("dropped"))
	for _, line := range b.operator.process.Log.Lines() {
		if strings.Contains(line, `"level":"error"`) && strings.Contains(line, "cert") {
			t.Errorf("a regular start logged an error: %s", line)
		}
	}
}

func TestCompanion_SIGKILL_KeepsWhatAPolicyKeeps(t *testing.T) {
	b := newCompanionEnv(t)
	b.applyKeepPolicy("Hold")
	b.operator.process.Kill()
	kept := b.createOrphan("kept")
	b.waitForFailedCall(kept)
	b.startOperator()
	b.waitForKept(kept)
}

func TestCompanion_SIGKILL_DeletesWithOnFaultDefault(t *testing.T) {
	b := newCompanionEnv(t)
	b.applyKeepPolicy("Default")
	b.operator.process.Kill()
	b.waitForDeletion(b.createOrphan("passed-over"))
}

func TestCompanion_RecreatesALostCertificate(t *testing.T) {
	b := newCompanionEnv(t)
	b.applyKeepPolicy("Hold")
	before, err := b.webhookConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.kube.CoreV1().Secrets("kube-system").Delete(t.Context(), "gleaner-webhook", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() error {
		now, err := b.webhookConfiguration()
		if err == nil && bytes.Equal(now.Webhooks[0].ClientConfig.CABundle, before.Webhooks[0].ClientConfig.CABundle) {
			err = errors.New("API server still trusts the lost certificate")
		}
		return err
	})
	b.waitForKept(b.createOrphan("kept"))
}

func TestCompanion_ReportsAMissingBuiltInCollector(t *testing.T) {
	cluster := devtest.Shared(t)
	address := devtest.FreeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	g := startReady(t, cluster, "--collector=companion", "--webhook-bind-address="+address, "--webhook-url=https://localhost:"+port+"/veto", "--canary-timeout=1s")
	devtest.Eventually(t, timeout, func() error {
		if status := g.get("/debug/gc/status").body; !strings.Contains(status, "no other garbage collector is running") {
			return errors.New(status)
		}
		return nil
	})
	if missing, _ := g.metric("gleaner_collector_missing"); missing != 1 {
		t.Errorf("gleaner_collector_missing is %g", missing)
	}
}

// waitForFailedCall waits until the built-in collector has tried to delete an object, and
// the webhook call has failed.
func (b *companionEnv) waitForFailedCall(o *corev1.ConfigMap) {
	b.Helper()
	devtest.Eventually(b, timeout, func() error {
		text, err := b.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
		if err == nil && !failedCallLine.Match(text) {
			err = errors.New("no webhook call has failed yet")
		}
		return err
	})
	if !b.exists(o) {
		b.Fatalf("%s is gone", o.Name)
	}
}

// failedCallLine matches a line of the API server's metrics.
var failedCallLine = regexp.MustCompile(`(?m)^apiserver_admission_webhook_rejection_count\{[^}]*error_type="calling_webhook_error"[^}]*veto\.gleaner\.dev[^}]*\} [1-9]`)
