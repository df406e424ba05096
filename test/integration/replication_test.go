package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// The integration tests of the built-in collector, with the same objects:
// ReplicationControllers, whose default is to orphan, and pods that the test
// creates. Tests of the same with ConfigMaps are in cascade_test.go and foreground_test.go.

func (w *env) createRC(name string, finalizers ...string) *unstructured.Unstructured {
	w.Helper()
	return w.create(objectSpec{name: name, kind: replicationController, finalizers: finalizers})
}

func (w *env) createPod(name string, owners []metav1.OwnerReference, finalizers ...string) *unstructured.Unstructured {
	w.Helper()
	return w.create(objectSpec{name: name, kind: pod, owners: owners, finalizers: finalizers})
}

func (w *env) deleteWith(o *unstructured.Unstructured, options metav1.DeleteOptions) {
	w.Helper()
	if err := w.client(kindOf(o), o.GetNamespace()).Delete(w.Context(), o.GetName(), options); err != nil {
		w.Fatal(err)
	}
}

func TestScenario37_PodsOfOneOwner_OfTwo_AndOfNone(t *testing.T) {
	w := newEnv(t)
	goes, stays := w.createRC("goes"), w.createRC("stays")
	sole := w.createPod("sole", ownerRefs(goes))
	shared := w.createPod("shared", ownerRefs(goes, stays))
	free := w.createPod("free", nil)
	w.waitForGraph(sole, shared, free)
	w.delete(goes, background)
	w.waitForDeletion(goes, sole)
	w.waitForOwners(shared, "stays")
	w.expectKept(shared, free, stays)
	w.waitForRemovalFromGraph(goes, sole)
}

func TestScenario38_PodOfAMissingOwner_IsCollected(t *testing.T) {
	w := newEnv(t)
	never := ownerRefs(w.createRC("rc"))
	never[0].Name, never[0].UID = "never", "3a6ee5b1-5a2c-4b7e-9d2f-0e1b6c9a0038"
	orphaned := w.createPod("pod", never)
	w.waitForDeletion(orphaned)
}

func TestScenario39_FiftyControllers_DeletedInFiveWays(t *testing.T) {
	w := newEnv(t)
	const each, pods = 10, 3
	ways := []struct {
		name       string
		finalizers []string
		options    metav1.DeleteOptions
		kept       bool
	}{
		{"default", nil, metav1.DeleteOptions{}, true},
		{"orphan-placed-before", []string{metav1.FinalizerOrphanDependents}, metav1.DeleteOptions{}, true},
		{"orphan-dependents-false", nil, metav1.DeleteOptions{OrphanDependents: ptr.To(false)}, false}, //nolint:staticcheck // deprecated, but still supported
		{"orphan-dependents-true", nil, metav1.DeleteOptions{OrphanDependents: ptr.To(true)}, true},    //nolint:staticcheck // deprecated, but still supported
		{"orphan", nil, deleteOptions(orphan), true},
	}
	var owners, kept, gone []*unstructured.Unstructured
	options := map[string]metav1.DeleteOptions{}
	for _, way := range ways {
		for i := range each {
			owner := w.createRC(fmt.Sprintf("%s-%d", way.name, i), way.finalizers...)
			owners = append(owners, owner)
			options[owner.GetName()] = way.options
			for j := range pods {
				p := w.createPod(fmt.Sprintf("%s-%d-%d", way.name, i, j), ownerRefs(owner))
				if way.kept {
					kept = append(kept, p)
				} else {
					gone = append(gone, p)
				}
			}
		}
	}
	w.waitForGraph(kept...)
	w.waitForGraph(gone...)
	for _, owner := range owners {
		w.deleteWith(owner, options[owner.GetName()])
	}
	w.waitForDeletion(owners...)
	w.waitForDeletion(gone...)
	for _, p := range kept {
		w.waitForOwners(p)
	}
	w.expectKept(kept...)
	w.waitForRemovalFromGraph(owners...)
}

func TestScenario42_NonBlockingPods(t *testing.T) {
	w := newEnv(t)
	owner := w.createRC("rc")
	no := ownerRefs(owner)
	no[0].BlockOwnerDeletion = ptr.To(false)
	held := []*unstructured.Unstructured{w.createPod("unset", ownerRefs(owner), testFinalizer), w.createPod("no", no, testFinalizer)}
	w.waitForGraph(held...)
	w.delete(owner, foreground)
	w.waitForDeletion(owner)
	for _, p := range held {
		w.waitForTerminating(p)
	}
}

func TestScenario43_ReplicationController_DeletedTwice(t *testing.T) {
	w := newEnv(t)
	owner := w.createRC("rc", testFinalizer)
	for range 2 {
		w.delete(owner, foreground)
		devtest.Eventually(t, timeout, func() error {
			if got := w.get(owner).GetFinalizers(); len(got) != 1 || got[0] != testFinalizer {
				return fmt.Errorf("finalizers are %v", got)
			}
			return nil
		})
	}
	w.patch(owner, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.waitForDeletion(owner)
}

func TestScenario44_BlockingPod(t *testing.T) {
	w := newEnv(t)
	owner := w.createRC("rc")
	held := w.createPod("pod", blockingRefs(owner), testFinalizer)
	w.waitForGraph(held)
	w.delete(owner, foreground)
	w.waitForTerminating(held)
	w.waitUntilIdle()
	if w.get(owner) == nil {
		t.Fatal("owner did not wait for the blocking pod")
	}
	w.patch(held, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.waitForDeletion(held, owner)
}
