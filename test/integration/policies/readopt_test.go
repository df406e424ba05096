package policies

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// delay is a webhook that has the API server wait before it carries out what the ReplicaSet controller has
// decided about a Pod.
type delay struct {
	armed   atomic.Bool
	called  atomic.Int64
	holding chan struct{} // has a value once a request is held
	release chan struct{} // closed: requests go on
}

// newDelay installs the webhook for updates of a Pod.
func newDelay(w *env, pod string) *delay {
	d := &delay{holding: make(chan struct{}, 1), release: make(chan struct{})}
	server := httptest.NewTLSServer(d)
	w.Cleanup(server.Close)
	client := kubernetes.NewForConfigOrDie(w.config).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	c, err := client.Create(w.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "delay.test.gleaner.dev", AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To[int32](30),
			SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), FailurePolicy: ptr.To(admissionregistrationv1.Ignore),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns}},
			MatchConditions:   []admissionregistrationv1.MatchCondition{{Name: "pod", Expression: "object.metadata.name == '" + pod + "'"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = client.Delete(context.WithoutCancel(w.Context()), c.Name, metav1.DeleteOptions{}) // best effort: the control plane ends soon
	})
	return d
}

// ServeHTTP allows every request, that of the controller once it is released.
func (d *delay) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	var review admissionv1.AdmissionReview
	data, err := io.ReadAll(in.Body)
	if err != nil || json.Unmarshal(data, &review) != nil || review.Request == nil {
		http.Error(out, "not a review", http.StatusBadRequest)
		return
	}
	d.called.Add(1)
	if review.Request.UserInfo.Username == "system:serviceaccount:kube-system:replicaset-controller" && d.armed.Load() {
		select {
		case d.holding <- struct{}{}:
		default:
		}
		<-d.release
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(review)
}

// createReplicaSet creates a ReplicaSet with one Pod, and waits until its controller has observed it.
func (w *env) createReplicaSet(name string) *unstructured.Unstructured {
	w.Helper()
	return w.createWorkload("ReplicaSet", name, map[string]any{"replicas": int64(1)})
}

// adoptLate deletes a ReplicaSet while its controller is about to adopt a Pod: it has read the ReplicaSet and
// seen that it is not being deleted, and its PATCH is delayed until the caller closes what is returned.
func adoptLate(w *env, policy metav1.DeletionPropagation) (owner, pod *unstructured.Unstructured, release chan struct{}) {
	w.Helper()
	owner = w.createReplicaSet("web")
	pod = w.createPod("late", map[string]any{"annotations": map[string]any{"controller.kubernetes.io/pod-deletion-cost": "100"}}, nil)
	d := newDelay(w, "late")
	touch := `{"metadata": {"annotations": {"touched": "true"}}}`
	w.eventually(func() error { // the API server calls it
		if _, err := w.client(pod).Patch(w.Context(), "late", types.MergePatchType, []byte(touch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return err
		}
		if d.called.Load() == 0 {
			return errorf("the webhook was not called")
		}
		return nil
	})
	d.armed.Store(true)
	w.patch(pod, `{"metadata": {"labels": {"app": "web"}}}`)
	select {
	case <-d.holding:
	case <-time.After(timeout):
		w.Fatal("the ReplicaSet controller doesn't adopt the Pod")
	}
	w.deleteWithPolicy(owner, policy)
	return owner, pod, d.release
}

// The race that the built-in collector loses: a ReplicaSet is deleted and orphans its Pods, its controller adopts
// another one that it has just found, and that Pod is collected because its owner is absent.
func TestObservedGeneration_KeepsPodsThatAControllerAdoptsLate(t *testing.T) {
	if *companionMode {
		t.Run("the built-in collector deletes them without a policy", func(t *testing.T) {
			w := newEnv(t)
			owner, pod, release := adoptLate(w, metav1.DeletePropagationOrphan)
			w.waitForDeletion(owner)
			close(release)
			w.waitForDeletion(pod)
		})
	}
	w := newEnv(t)
	requested := metav1.DeletePropagationOrphan
	if *companionMode { // without a policy, Gleaner is not involved
		w.applyPolicy(`
kind: GCPolicy
metadata: {name: governs}
spec:
  resources: [{apiGroups: [apps], resources: [replicasets]}]
  mode: Enforce
  fixed: {propagate: {decision: Orphan}}`)
		requested = metav1.DeletePropagationBackground
	}
	owner, pod, release := adoptLate(w, requested)
	w.waitForDecision(owner, "DeletionNotObserved")
	changes, err := w.client(pod).Watch(w.Context(), metav1.ListOptions{FieldSelector: "metadata.name=late", ResourceVersion: w.get(pod).GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	close(release)
	w.waitForDeletion(owner)
	w.waitForNoOwners(pod)
	if change := <-changes.ResultChan(); len(change.Object.(*unstructured.Unstructured).GetOwnerReferences()) != 1 {
		t.Errorf("the controller has not adopted it, so that this test shows nothing: %v", change)
	}
}
