package faults

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// a second DELETE changes what happens to dependents that have not
// been collected yet. They still exist because the API server responds with 429.
func TestA09_SecondDelete_ChangesThePolicy(t *testing.T) {
	for _, c := range []struct {
		first, second metav1.DeletionPropagation
		goes          bool
	}{
		{foreground, orphan, false}, {orphan, background, true}, {background, foreground, true},
		{background, orphan, false}, {orphan, foreground, true}, {foreground, background, true},
	} {
		t.Run(fmt.Sprintf("%s to %s", c.first, c.second), func(t *testing.T) {
			w := newEnv(t)
			owner := w.create(objectSpec{name: "owner", finalizers: []string{testFinalizer}})
			var dependents []*unstructured.Unstructured
			for i := range 5 {
				dependents = append(dependents, w.create(objectSpec{name: fmt.Sprintf("dependent-%d", i), owners: blockingRefs(owner)}))
			}
			w.waitForGraph(dependents...)
			// At first, deletes and patches of dependents fail.
			busy := w.proxy.fail(t, -1, func(c call) bool {
				return inNamespace(w.ns, "delete", "patch")(c) && c.Name != owner.GetName()
			}, unavailable)
			w.delete(owner, c.first)
			if c.first != background { // then the owner still exists
				busy.waitForCount(t, 5)
			}
			w.delete(owner, c.second)
			w.waitForSecondDelete(owner, c.second)
			busy.Lift()
			late := w.create(objectSpec{name: "late", owners: blockingRefs(owner)})
			dependents = append(dependents, late)
			switch {
			case c.goes && c.second == background: // as long as it exists, they do
				w.expectKept(dependents...)
				w.removeFinalizers(owner)
				w.waitForDeletion(append(dependents, owner)...)
			case c.goes:
				w.waitForDeletion(dependents...)
				w.removeFinalizers(owner)
				w.waitForDeletion(owner)
			default:
				for _, o := range dependents {
					w.waitForOwners(o)
				}
				w.removeFinalizers(owner)
				w.waitForDeletion(owner)
				w.expectKept(dependents...)
			}
		})
	}
}

// waitForSecondDelete waits until the collector must have seen a second DELETE: its
// watch has delivered it, and earlier reads have expired.
func (w *env) waitForSecondDelete(owner *unstructured.Unstructured, policy metav1.DeletionPropagation) {
	w.Helper()
	eventually(w, func() error {
		for _, n := range w.collector.Show().Dump(owner.GetUID()).Nodes {
			if n.UID != owner.GetUID() {
				continue
			}
			if n.Foreground == (policy == foreground) && n.Orphan == (policy == orphan) && n.Terminating {
				return nil
			}
		}
		return fmt.Errorf("%s is not in the graph with policy %s", owner.GetName(), policy)
	})
	sleep(w.Context())
}
