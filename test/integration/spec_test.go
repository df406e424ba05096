package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// What the documentation of Kubernetes promises its users, sentence by
// sentence in our words:
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/ and
// https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/
func TestWhatTheDocumentationOfKubernetesPromises(t *testing.T) {
	for _, promise := range []struct {
		name string
		test func(*world)
	}{
		{"background: the owner is gone at once, and its dependents after it", func(w *world) {
			owner := w.make(thing{name: "owner"})
			dependent := w.make(thing{name: "dependent", owners: owns(owner)})
			w.delete(owner, background)
			if w.get(owner) != nil {
				w.Error("the owner is still there")
			}
			w.goes(dependent)
		}},
		{"foreground: the owner stays visible, with a deletion time and the finalizer, until its dependents are gone", func(w *world) {
			owner := w.make(thing{name: "owner"})
			dependent := w.make(thing{name: "dependent", owners: blocks(owner), finalizers: []string{hold}})
			w.seen(dependent)
			w.delete(owner, foreground)
			w.ending(dependent)
			live := w.get(owner)
			if live == nil || live.GetDeletionTimestamp() == nil || fmt.Sprint(live.GetFinalizers()) != "[foregroundDeletion]" {
				w.Fatalf("the owner is %v", live)
			}
			w.patch(dependent, map[string]any{"metadata": map[string]any{"finalizers": nil}})
			w.goes(dependent, owner)
		}},
		{"foreground: only dependents with blockOwnerDeletion hold the owner up", func(w *world) {
			owner := w.make(thing{name: "owner"})
			dependent := w.make(thing{name: "dependent", owners: owns(owner), finalizers: []string{hold}})
			w.seen(dependent)
			w.delete(owner, foreground)
			w.goes(owner)
			w.ending(dependent)
		}},
		{"orphan: the dependents are left behind", func(w *world) {
			owner := w.make(thing{name: "owner"})
			dependent := w.make(thing{name: "dependent", owners: owns(owner)})
			w.delete(owner, orphan)
			w.goes(owner)
			w.ownedBy(dependent)
			w.stays(dependent)
		}},
		{"without a wish, dependents are deleted", func(w *world) {
			owner := w.make(thing{name: "owner"})
			dependent := w.make(thing{name: "dependent", owners: owns(owner)})
			if err := w.client(nil, "").Delete(w.Context(), owner.GetName(), metav1.DeleteOptions{}); err != nil {
				w.Fatal(err)
			}
			w.goes(dependent)
		}},
		{"an owner in another namespace counts as absent, once all owners are known to be", func(w *world) {
			owner, here := w.make(thing{name: "owner"}), w.make(thing{name: "here"})
			w.seen(owner)
			far := worldOn(w.T, w.config, w.collector)
			alone := far.make(thing{name: "alone", owners: owns(owner)})
			far.goes(alone)
			near := far.make(thing{name: "near"})
			both := far.make(thing{name: "both", owners: append(owns(owner), owns(near)...)})
			far.ownedBy(both, "near")
			far.stays(both)
			w.stays(owner, here)
		}},
		{"a cluster-scoped object can't be collected on account of a namespaced owner", func(w *world) {
			owner := w.make(thing{name: "owner"})
			child := w.make(thing{name: w.ns + "-child", kind: clusterRole, owners: owns(owner)})
			w.delete(owner, background)
			w.goes(owner)
			w.stays(child)
		}},
		{"references of both wrong kinds are told of by an event on the dependent", func(w *world) {
			owner := w.make(thing{name: "owner"})
			w.seen(owner)
			child := w.make(thing{name: w.ns + "-child", kind: clusterRole, owners: owns(owner)})
			w.warning(child)
			far := worldOn(w.T, w.config, w.collector)
			far.warning(far.make(thing{name: "far", owners: owns(owner), finalizers: []string{hold}}))
		}},
	} {
		t.Run(promise.name, func(t *testing.T) { promise.test(newWorld(t)) })
	}
}

// ending waits until an object is being deleted.
func (w *world) ending(o *unstructured.Unstructured) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		if live := w.get(o); live == nil || live.GetDeletionTimestamp() == nil {
			return fmt.Errorf("%s is not being deleted: %v", o.GetName(), live)
		}
		return nil
	})
}
