package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// What the documentation of Kubernetes promises its users, sentence by
// sentence, in our words:
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/ and
// https://kubernetes.io/docs/concepts/overview/working-with-objects/owners-dependents/
func TestKubernetesDocumentation_Holds(t *testing.T) {
	for _, promise := range []struct {
		name string
		test func(*env)
	}{
		{"background: the owner is deleted at once, and its dependents afterwards", func(w *env) {
			owner := w.create(objectSpec{name: "owner"})
			dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner)})
			w.delete(owner, background)
			if w.get(owner) != nil {
				w.Error("owner still exists")
			}
			w.waitForDeletion(dependent)
		}},
		{"foreground: the owner stays visible, with a deletion time and the finalizer, until its dependents are gone", func(w *env) {
			owner := w.create(objectSpec{name: "owner"})
			dependent := w.create(objectSpec{name: "dependent", owners: blockingRefs(owner), finalizers: []string{testFinalizer}})
			w.waitForGraph(dependent)
			w.delete(owner, foreground)
			w.waitForTerminating(dependent)
			live := w.get(owner)
			if live == nil || live.GetDeletionTimestamp() == nil || fmt.Sprint(live.GetFinalizers()) != "[foregroundDeletion]" {
				w.Fatalf("the owner is %v", live)
			}
			w.patch(dependent, map[string]any{"metadata": map[string]any{"finalizers": nil}})
			w.waitForDeletion(dependent, owner)
		}},
		{"foreground: only dependents with blockOwnerDeletion block the owner", func(w *env) {
			owner := w.create(objectSpec{name: "owner"})
			dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner), finalizers: []string{testFinalizer}})
			w.waitForGraph(dependent)
			w.delete(owner, foreground)
			w.waitForDeletion(owner)
			w.waitForTerminating(dependent)
		}},
		{"orphan: the dependents are left behind", func(w *env) {
			owner := w.create(objectSpec{name: "owner"})
			dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner)})
			w.delete(owner, orphan)
			w.waitForDeletion(owner)
			w.waitForOwners(dependent)
			w.expectKept(dependent)
		}},
		{"without a policy, dependents are deleted", func(w *env) {
			owner := w.create(objectSpec{name: "owner"})
			dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner)})
			if err := w.client(nil, "").Delete(w.Context(), owner.GetName(), metav1.DeleteOptions{}); err != nil {
				w.Fatal(err)
			}
			w.waitForDeletion(dependent)
		}},
		{"an owner in another namespace counts as absent, once all owners are known to be", func(w *env) {
			owner, here := w.create(objectSpec{name: "owner"}), w.create(objectSpec{name: "here"})
			w.waitForGraph(owner)
			far := newEnvOn(w.T, w.config, w.collector)
			alone := far.create(objectSpec{name: "alone", owners: ownerRefs(owner)})
			far.waitForDeletion(alone)
			near := far.create(objectSpec{name: "near"})
			both := far.create(objectSpec{name: "both", owners: append(ownerRefs(owner), ownerRefs(near)...)})
			far.waitForOwners(both, "near")
			far.expectKept(both)
			w.expectKept(owner, here)
		}},
		{"a cluster-scoped object is not collected because of a namespaced owner", func(w *env) {
			owner := w.create(objectSpec{name: "owner"})
			child := w.create(objectSpec{name: w.ns + "-child", kind: clusterRole, owners: ownerRefs(owner)})
			w.delete(owner, background)
			w.waitForDeletion(owner)
			w.expectKept(child)
		}},
		{"both kinds of invalid references are reported by an event on the dependent", func(w *env) {
			owner := w.create(objectSpec{name: "owner"})
			w.waitForGraph(owner)
			child := w.create(objectSpec{name: w.ns + "-child", kind: clusterRole, owners: ownerRefs(owner)})
			w.waitForWarning(child)
			far := newEnvOn(w.T, w.config, w.collector)
			far.waitForWarning(far.create(objectSpec{name: "far", owners: ownerRefs(owner), finalizers: []string{testFinalizer}}))
		}},
	} {
		t.Run(promise.name, func(t *testing.T) { promise.test(newEnv(t)) })
	}
}

// waitForTerminating waits until an object is terminating.
func (w *env) waitForTerminating(o *unstructured.Unstructured) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		if live := w.get(o); live == nil || live.GetDeletionTimestamp() == nil {
			return fmt.Errorf("%s is not being deleted: %v", o.GetName(), live)
		}
		return nil
	})
}
