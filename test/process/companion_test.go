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

// beside is a control plane with its own collector, and a companion that comes and
// goes beside it, always at the same address.
type beside struct {
	*world
	cluster *devcluster.Cluster
	address string
	gleaner *gleaner
}

func newBeside(t *testing.T) *beside {
	t.Helper()
	b := idleBeside(t)
	b.run()
	return b
}

// idleBeside is one whose companion is not running yet.
func idleBeside(t *testing.T) *beside {
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
	define(t, cluster.RESTConfig())
	return &beside{world: newWorld(t, cluster), cluster: cluster, address: freeAddress(t)}
}

func (b *beside) run(flags ...string) {
	b.Helper()
	b.gleaner = running(b.T, b.cluster, append(b.flags(), flags...)...)
}

func (b *beside) flags() []string {
	_, port, _ := strings.Cut(b.address, ":")
	return []string{"--collector=companion", "--canary-timeout=2s", "--webhook-bind-address=" + b.address, "--webhook-url=https://localhost:" + port + "/veto"}
}

// keeps has a policy keep ConfigMaps, and waits until it is enforced.
func (b *beside) keeps(onFault string) dynamic.ResourceInterface {
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
	devtest.Eventually(b, patience, func() error { // the type is served a moment after it was defined
		_, err := policies.Create(b.Context(), policy, metav1.CreateOptions{})
		return err
	})
	devtest.Eventually(b, patience, func() error {
		if _, err := b.configuration(); err != nil {
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

func (b *beside) configuration() (*registrationv1.ValidatingWebhookConfiguration, error) {
	return b.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(b.Context(), "gleaner-veto", metav1.GetOptions{})
}

// stays waits until an object has no references to owners any more, and is there.
func (b *beside) stays(o *corev1.ConfigMap) {
	b.Helper()
	devtest.Eventually(b, patience, func() error {
		live, err := b.kube.CoreV1().ConfigMaps(b.ns).Get(b.Context(), o.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			b.Fatalf("%s is gone", o.Name)
		}
		if err == nil && len(live.OwnerReferences) != 0 {
			err = errors.New("it still names its owner")
		}
		return err
	})
}

func TestCompanion_KeepsWhatAPolicyKeeps(t *testing.T) {
	b := newBeside(t)
	policies := b.keeps("Hold")
	b.stays(b.orphaned("kept"))
	if err := policies.Delete(t.Context(), "keeps", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, patience, func() error {
		if _, err := b.configuration(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the webhook's configuration is still there: %w", err)
		}
		return nil
	})
	b.goes(b.orphaned("dropped"))
	for _, line := range b.gleaner.log.lines() {
		if strings.Contains(line, `"level":"error"`) && strings.Contains(line, "cert") {
			t.Errorf("a start as it should be is an error in the log: %s", line)
		}
	}
}

func TestCompanion_SIGKILLLosesNothingThatAPolicyKeeps(t *testing.T) {
	b := newBeside(t)
	b.keeps("Hold")
	b.gleaner.kill()
	kept := b.orphaned("kept")
	b.refusedByNobody(kept)
	b.run()
	b.stays(kept)
}

func TestCompanion_SIGKILLLetsGoWhatIsNotToBeHeldByAFault(t *testing.T) {
	b := newBeside(t)
	b.keeps("Default")
	b.gleaner.kill()
	b.goes(b.orphaned("passed-over"))
}

func TestCompanion_ALostCertificateIsMadeAgain(t *testing.T) {
	b := newBeside(t)
	b.keeps("Hold")
	before, err := b.configuration()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.kube.CoreV1().Secrets("kube-system").Delete(t.Context(), "gleaner-webhook", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, patience, func() error {
		now, err := b.configuration()
		if err == nil && bytes.Equal(now.Webhooks[0].ClientConfig.CABundle, before.Webhooks[0].ClientConfig.CABundle) {
			err = errors.New("the API server still believes in the lost certificate")
		}
		return err
	})
	b.stays(b.orphaned("kept"))
}

func TestCompanion_SaysThatThereIsNoOtherCollector(t *testing.T) {
	cluster := sharedCluster(t)
	address := freeAddress(t)
	_, port, _ := strings.Cut(address, ":")
	g := running(t, cluster, "--collector=companion", "--webhook-bind-address="+address, "--webhook-url=https://localhost:"+port+"/veto", "--canary-timeout=1s")
	devtest.Eventually(t, patience, func() error {
		if status := g.get("/debug/gc/status").body; !strings.Contains(status, "no other garbage collector is running") {
			return errors.New(status)
		}
		return nil
	})
	if missing, _ := g.metric("gleaner_collector_missing"); missing != 1 {
		t.Errorf("gleaner_collector_missing is %g", missing)
	}
}

// refusedByNobody waits until the other collector has tried to delete an object, and
// could not.
func (b *beside) refusedByNobody(o *corev1.ConfigMap) {
	b.Helper()
	devtest.Eventually(b, patience, func() error {
		text, err := b.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
		if err == nil && !webhookFailed.Match(text) {
			err = errors.New("no call of the webhook has failed yet")
		}
		return err
	})
	if !b.exists(o) {
		b.Fatalf("%s is gone", o.Name)
	}
}

// webhookFailed is a line of the API server's metrics.
var webhookFailed = regexp.MustCompile(`(?m)^apiserver_admission_webhook_rejection_count\{[^}]*error_type="calling_webhook_error"[^}]*veto\.gleaner\.dev[^}]*\} [1-9]`)
