package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// The integration tests of Kubernetes' own collector, with what they use:
// ReplicationControllers, whose default is to orphan, and pods that the test
// makes. The same on ConfigMaps is beside what else is tested with those.

func (w *world) rc(name string, finalizers ...string) *unstructured.Unstructured {
	w.Helper()
	return w.make(thing{name: name, kind: replicationController, finalizers: finalizers})
}

func (w *world) podOwnedBy(name string, owners []metav1.OwnerReference, finalizers ...string) *unstructured.Unstructured {
	w.Helper()
	return w.make(thing{name: name, kind: pod, owners: owners, finalizers: finalizers})
}

func (w *world) deleteWith(o *unstructured.Unstructured, options metav1.DeleteOptions) {
	w.Helper()
	if err := w.client(kindOf(o), o.GetNamespace()).Delete(w.Context(), o.GetName(), options); err != nil {
		w.Fatal(err)
	}
}

func TestScenario37_PodsOfOneOwnerOfTwoAndOfNone(t *testing.T) {
	w := newWorld(t)
	goes, stays := w.rc("goes"), w.rc("stays")
	sole := w.podOwnedBy("sole", owns(goes))
	shared := w.podOwnedBy("shared", owns(goes, stays))
	free := w.podOwnedBy("free", nil)
	w.seen(sole, shared, free)
	w.delete(goes, background)
	w.goes(goes, sole)
	w.ownedBy(shared, "stays")
	w.stays(shared, free, stays)
	w.forgotten(goes, sole)
}

func TestScenario38_APodOfAnOwnerThatNeverExisted(t *testing.T) {
	w := newWorld(t)
	never := owns(w.rc("rc"))
	never[0].Name, never[0].UID = "never", "3a6ee5b1-5a2c-4b7e-9d2f-0e1b6c9a0038"
	orphaned := w.podOwnedBy("pod", never)
	w.goes(orphaned)
}

func TestScenario39_FiftyReplicationControllersDeletedInFiveWays(t *testing.T) {
	w := newWorld(t)
	const each, pods = 10, 3
	ways := []struct {
		name       string
		finalizers []string
		options    metav1.DeleteOptions
		kept       bool
	}{
		{"default", nil, metav1.DeleteOptions{}, true},
		{"orphan-placed-before", []string{metav1.FinalizerOrphanDependents}, metav1.DeleteOptions{}, true},
		{"orphan-dependents-false", nil, metav1.DeleteOptions{OrphanDependents: ptr.To(false)}, false}, //nolint:staticcheck // is deprecated, and still honoured
		{"orphan-dependents-true", nil, metav1.DeleteOptions{OrphanDependents: ptr.To(true)}, true},    //nolint:staticcheck // is deprecated, and still honoured
		{"orphan", nil, by(orphan), true},
	}
	var owners, kept, gone []*unstructured.Unstructured
	options := map[string]metav1.DeleteOptions{}
	for _, way := range ways {
		for i := range each {
			owner := w.rc(fmt.Sprintf("%s-%d", way.name, i), way.finalizers...)
			owners = append(owners, owner)
			options[owner.GetName()] = way.options
			for j := range pods {
				p := w.podOwnedBy(fmt.Sprintf("%s-%d-%d", way.name, i, j), owns(owner))
				if way.kept {
					kept = append(kept, p)
				} else {
					gone = append(gone, p)
				}
			}
		}
	}
	w.seen(kept...)
	w.seen(gone...)
	for _, owner := range owners {
		w.deleteWith(owner, options[owner.GetName()])
	}
	w.goes(owners...)
	w.goes(gone...)
	for _, p := range kept {
		w.ownedBy(p)
	}
	w.stays(kept...)
	w.forgotten(owners...)
}

func TestScenario42_PodsThatDoNotBlock(t *testing.T) {
	w := newWorld(t)
	owner := w.rc("rc")
	no := owns(owner)
	no[0].BlockOwnerDeletion = ptr.To(false)
	held := []*unstructured.Unstructured{w.podOwnedBy("unset", owns(owner), hold), w.podOwnedBy("no", no, hold)}
	w.seen(held...)
	w.delete(owner, foreground)
	w.goes(owner)
	for _, p := range held {
		w.ending(p)
	}
}

func TestScenario43_AReplicationControllerDeletedTwice(t *testing.T) {
	w := newWorld(t)
	owner := w.rc("rc", hold)
	for range 2 {
		w.delete(owner, foreground)
		devtest.Eventually(t, patience, func() error {
			if got := w.get(owner).GetFinalizers(); len(got) != 1 || got[0] != hold {
				return fmt.Errorf("finalizers are %v", got)
			}
			return nil
		})
	}
	w.patch(owner, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.goes(owner)
}

func TestScenario44_APodThatBlocks(t *testing.T) {
	w := newWorld(t)
	owner := w.rc("rc")
	held := w.podOwnedBy("pod", blocks(owner), hold)
	w.seen(held)
	w.delete(owner, foreground)
	w.ending(held)
	w.calm()
	if w.get(owner) == nil {
		t.Fatal("the owner did not wait for the pod that blocks it")
	}
	w.patch(held, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.goes(held, owner)
}
