package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const testFinalizer = "test.gleaner.dev/hold"

func TestG58_G60_Foreground_DeletesTheTreeBottomUp(t *testing.T) {
	w := newEnv(t)
	root := w.create(objectSpec{name: "root"})
	middle := w.create(objectSpec{name: "middle", owners: blockingRefs(root)})
	leaf := w.create(objectSpec{name: "leaf", owners: blockingRefs(middle)})
	loose := w.create(objectSpec{name: "loose", owners: ownerRefs(root)})
	w.waitForGraph(root, middle, leaf, loose)
	ends := w.watchDeletionOrder()
	w.delete(root, foreground)
	w.waitForDeletion(root, middle, leaf, loose)
	var order []string
	for len(order) < 4 {
		order = append(order, ends())
	}
	for _, pair := range [][2]string{{"leaf", "middle"}, {"middle", "root"}} {
		if slices.Index(order, pair[0]) > slices.Index(order, pair[1]) {
			t.Errorf("%s blocks %s, but the deletion order was %v", pair[0], pair[1], order)
		}
	}
}

// G-58: the dependents that block an owner are checked again until they are gone; the
// owner's finalizer stays until then, and no longer. While a known dependent blocks the
// owner, the types are not searched for others.
func TestG58_Owner_KeepsItsFinalizerWhileBlocked(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	first := w.create(objectSpec{name: "first", owners: blockingRefs(owner), finalizers: []string{testFinalizer}})
	second := w.create(objectSpec{name: "second", owners: blockingRefs(owner), finalizers: []string{testFinalizer}})
	w.waitForGraph(first, second)
	w.delete(owner, foreground)
	w.waitForTerminating(first)
	w.waitForTerminating(second)
	blocking := []string{"first", "second"}
	for n, last := range []*unstructured.Unstructured{first, second} {
		w.waitUntilIdle()
		w.waitForBlockers(owner, blocking[n:]...)
		if live := w.get(owner); live == nil || !slices.Contains(live.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			t.Fatalf("%s blocks the owner, but the owner is %v", last.GetName(), live)
		}
		w.patch(last, map[string]any{"metadata": map[string]any{"finalizers": nil}})
		w.waitForDeletion(last)
	}
	w.waitForDeletion(owner)
}

// waitForBlockers waits until the latest decision on an owner says that these dependents block
// it, and checks that there was no other decision since its deletion began.
func (w *env) waitForBlockers(owner *unstructured.Unstructured, names ...string) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		entries := w.collector.Records(owner.GetUID())
		if len(entries) == 0 {
			return fmt.Errorf("no decision about %s", owner.GetName())
		}
		for _, e := range entries {
			if e.Reason != decide.DependentsRemain {
				w.Fatalf("unexpected decision on %s with reason %s: %v", owner.GetName(), e.Reason, e)
			}
		}
		var got []string
		for _, b := range slices.MaxFunc(entries, func(a, b record.Entry) int { return a.Time.Compare(b.Time) }).Blockers {
			got = append(got, b.Object.Name)
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			return fmt.Errorf("%s waits for %v; want %v", owner.GetName(), got, names)
		}
		return nil
	})
}

// watchDeletionOrder watches deletions from now on, and returns a function that waits for the next one.
func (w *env) watchDeletionOrder() func() string {
	w.Helper()
	client := w.client(configMap, w.ns)
	list, err := client.List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	stream, err := client.Watch(w.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(stream.Stop)
	late := time.After(timeout)
	return func() string {
		w.Helper()
		for {
			select {
			case event := <-stream.ResultChan():
				if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Deleted {
					return o.GetName()
				}
			case <-late:
				w.Fatal("no object was deleted")
			}
		}
	}
}

func TestScenario41_G62_DependentWithAnotherOwner_DoesNotBlock(t *testing.T) {
	w := newEnv(t)
	waiting, solid := w.create(objectSpec{name: "waiting"}), w.create(objectSpec{name: "solid"})
	shared := w.create(objectSpec{name: "shared", owners: blockingRefs(waiting, solid)})
	w.waitForGraph(shared)
	w.delete(waiting, foreground)
	w.waitForDeletion(waiting)
	w.waitForOwners(shared, "solid")
	w.expectKept(shared)
}

func TestScenario42_NonBlockingReferences_DoNotBlock(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	unset := w.create(objectSpec{name: "unset", owners: ownerRefs(owner), finalizers: []string{testFinalizer}})
	no := ownerRefs(owner)
	no[0].BlockOwnerDeletion = ptr.To(false)
	unblocking := w.create(objectSpec{name: "no", owners: no, finalizers: []string{testFinalizer}})
	w.waitForGraph(unset, unblocking)
	w.delete(owner, foreground)
	w.waitForDeletion(owner)
	for _, o := range []*unstructured.Unstructured{unset, unblocking} {
		if live := w.get(o); live == nil {
			t.Errorf("%s is gone despite its finalizer", o.GetName())
		}
	}
}

func TestScenario44_BlockingReferences_Block(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	held := w.create(objectSpec{name: "held", owners: blockingRefs(owner), finalizers: []string{testFinalizer}})
	w.waitForGraph(held)
	w.delete(owner, foreground)
	w.waitForTerminating(held)
	w.waitUntilIdle()
	if w.get(owner) == nil {
		t.Fatal("the owner did not wait for the dependent that blocks it")
	}
	w.patch(held, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.waitForDeletion(held, owner)
}

func TestScenario43_3_4_SecondForegroundDelete(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner", finalizers: []string{testFinalizer}})
	for range 2 {
		w.delete(owner, foreground)
		devtest.Eventually(t, timeout, func() error {
			if live := w.get(owner); len(live.GetFinalizers()) != 1 {
				return fmt.Errorf("finalizers are %v", live.GetFinalizers())
			}
			return nil
		})
	}
	w.patch(owner, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.waitForDeletion(owner)
}

func TestScenario57_G64_3_19_CycleOfThree_UnblocksOneEdge(t *testing.T) {
	w := newEnv(t)
	var ring []*unstructured.Unstructured
	for i := range 3 {
		ring = append(ring, w.create(objectSpec{name: fmt.Sprintf("ring-%d", i), kind: pod}))
	}
	for i, o := range ring {
		w.patch(o, map[string]any{"metadata": map[string]any{"ownerReferences": blockingRefs(ring[(i+1)%3])}})
	}
	devtest.Eventually(t, timeout, func() error {
		for _, o := range ring {
			if len(w.ownerNames(o)) != 1 {
				return fmt.Errorf("%s has no owner reference yet", o.GetName())
			}
		}
		return nil
	})
	w.delete(ring[0], foreground)
	w.waitForDeletion(ring...)
	unblocked := 0
	for _, o := range ring {
		for _, e := range w.collector.Records(o.GetUID()) {
			if e.Action == "UnblockOwner" && e.Result == "Done" {
				unblocked++
			}
		}
	}
	if unblocked != 1 {
		t.Errorf("%d edges were unblocked", unblocked)
	}
}

func TestObject_ThatOwnsItself_IsCollected(t *testing.T) {
	w := newEnv(t)
	self := w.create(objectSpec{name: "self"})
	w.patch(self, map[string]any{"metadata": map[string]any{"ownerReferences": blockingRefs(self)}})
	w.delete(self, foreground)
	w.waitForDeletion(self)
}

func TestG61_Foreground_IgnoresOtherFinalizers(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner", finalizers: []string{testFinalizer, "test.gleaner.dev/other"}})
	dependent := w.create(objectSpec{name: "dependent", owners: blockingRefs(owner)})
	w.waitForGraph(dependent)
	w.delete(owner, foreground)
	w.waitForDeletion(dependent)
	devtest.Eventually(t, timeout, func() error {
		live := w.get(owner)
		if got := live.GetFinalizers(); len(got) != 2 || got[0] != testFinalizer { // G-57: other finalizers and their order are preserved
			return fmt.Errorf("finalizers are %v", got)
		}
		return nil
	})
}

func TestA09_SecondDelete_TurnsForegroundIntoOrphan(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	held := w.create(objectSpec{name: "held", owners: blockingRefs(owner), finalizers: []string{testFinalizer}})
	w.waitForGraph(held)
	w.delete(owner, foreground)
	w.waitForTerminating(held)
	w.delete(owner, orphan)
	w.waitForDeletion(owner)
	w.waitForOwners(held)
}

// A dependent that is created just before its owner's deletion may not be in the graph
// yet. 3.16 and 3.17: the owner is released only when no such dependent is left; the
// built-in collector would orphan, or wait for, only the dependents in its graph.
func TestBarrier_NewDependent_IsNotMissed(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{"3.16 foreground": foreground, "3.17 orphan": orphan} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t)
			first := w.create(objectSpec{name: "first"})
			w.create(objectSpec{name: "known", owners: blockingRefs(first)}) // the kinds are known as owner and dependent
			for i := range 20 {
				owner := w.create(objectSpec{name: fmt.Sprintf("owner-%d", i)})
				dependent := w.create(objectSpec{name: fmt.Sprintf("dependent-%d", i), owners: blockingRefs(owner), finalizers: []string{testFinalizer}})
				w.delete(owner, policy)
				if policy == orphan {
					w.waitForDeletion(owner)
					w.waitForOwners(dependent)
					continue
				}
				w.waitForTerminating(dependent)
				if w.get(owner) == nil {
					t.Fatal("owner was deleted before its blocking dependent")
				}
			}
		})
	}
}
