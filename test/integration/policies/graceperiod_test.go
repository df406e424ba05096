package policies

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// createNode creates a Node without a kubelet, so that nothing ends the grace period of its Pods. Its name is that of the
// namespace, and its taint keeps away the Pods of other tests' DaemonSets.
func (w *env) createNode() {
	w.Helper()
	nodes := kubernetes.NewForConfigOrDie(w.config).CoreV1().Nodes()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.ns},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "test.gleaner.dev/without-kubelet", Effect: corev1.TaintEffectNoSchedule}}},
	}
	if _, err := nodes.Create(w.Context(), node, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = nodes.Delete(context.WithoutCancel(w.Context()), w.ns, metav1.DeleteOptions{}) // best effort: the control plane ends soon
	})
}

// createAssignedPod creates a Pod on the node of createNode.
func (w *env) createAssignedPod(name string, owner *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	ref := map[string]any{
		"apiVersion": owner.GetAPIVersion(), "kind": owner.GetKind(), "name": owner.GetName(), "uid": string(owner.GetUID()), "blockOwnerDeletion": true,
	}
	return w.createPod(name, map[string]any{"ownerReferences": []any{ref}}, map[string]any{"nodeName": w.ns, "terminationGracePeriodSeconds": int64(30)})
}

// The grace period is that of everything below the owner; beside the built-in collector, it is that of
// its own dependents.
func TestGracePeriod_IsThatOfTheSubtree(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground, gracePeriodSeconds: 600}}`)
	w.createNode()
	owner := w.createHeldSecret()
	pods := []*unstructured.Unstructured{w.createAssignedPod("direct", owner)}
	if !*companionMode {
		pods = append(pods, w.createAssignedPod("indirect", w.createConfigMap("between", owner)))
	}
	w.delete(owner)
	for _, pod := range pods {
		live := w.waitForTerminating(pod)
		if seconds := live.GetDeletionGracePeriodSeconds(); seconds == nil || *seconds != 600 {
			t.Errorf("%s has grace period %v; %s", pod.GetName(), seconds, w.describeDecisions(pod))
		}
	}
	if w.get(owner).GetName() == "" {
		t.Error("the owner didn't wait")
	}
	for _, pod := range pods {
		w.forceDelete(pod)
	}
	w.waitForDeletion(owner)
}

// deleteWithGracePeriod requests the deletion of an object with a grace period, as kubectl delete --grace-period does.
func (w *env) deleteWithGracePeriod(o *unstructured.Unstructured, seconds int64) {
	w.Helper()
	if err := w.client(o).Delete(w.Context(), o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &seconds}); err != nil {
		w.Fatal(err)
	}
}

// waitForGracePeriods waits until the API server calls the webhook that stores grace periods of requests.
func (w *env) waitForGracePeriods() {
	w.Helper()
	probes := 0
	w.eventually(func() error {
		probes++
		probe := w.createObject("Secret", fmt.Sprintf("probe-%d", probes), nil)
		defer w.forceDelete(probe)
		w.waitForHold(probe, true)
		w.patch(probe, `{"metadata":{"finalizers":["gleaner.dev/hold","test.gleaner.dev/stay"]}}`)
		w.deleteWithGracePeriod(probe, 5)
		if _, stored := w.get(probe).GetAnnotations()[objectstate.GracePeriodAnnotation]; !stored {
			return errorf("the grace period of a request is not stored")
		}
		return nil
	})
}

// The API server keeps the grace period of a request only for types that are deleted gracefully, which a Secret isn't.
func TestInheritGracePeriod_OfTheRequest(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground, gracePeriodSeconds: 600, inheritGracePeriod: true}}`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	w.createNode()
	w.waitForGracePeriods()
	for name, c := range map[string]struct {
		requested *int64
		want      int64
	}{
		"requested": {ptr.To[int64](90), 90},
		"none":      {nil, 600},
		"forced":    {ptr.To[int64](0), 1},
	} {
		owner := w.createObject("Secret", name, nil)
		w.waitForHold(owner, true)
		pod := w.createAssignedPod(name, owner)
		if err := w.client(owner).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: c.requested}); err != nil {
			t.Fatal(err)
		}
		live := w.waitForTerminating(pod)
		if seconds := live.GetDeletionGracePeriodSeconds(); seconds == nil || *seconds != c.want {
			t.Errorf("%s: the Pod has grace period %v; want %d; %s", name, seconds, c.want, w.describeDecisions(pod))
		}
		w.forceDelete(pod)
		w.waitForDeletion(owner)
	}
}
