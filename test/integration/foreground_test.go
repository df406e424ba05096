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

const hold = "test.gleaner.dev/hold"

func TestG58_G60_ForegroundDeletionTakesTheWholeTreeFirst(t *testing.T) {
	w := newWorld(t)
	root := w.make(thing{name: "root"})
	middle := w.make(thing{name: "middle", owners: blocks(root)})
	leaf := w.make(thing{name: "leaf", owners: blocks(middle)})
	loose := w.make(thing{name: "loose", owners: owns(root)})
	w.seen(root, middle, leaf, loose)
	ends := w.ends()
	w.delete(root, foreground)
	w.goes(root, middle, leaf, loose)
	var order []string
	for len(order) < 4 {
		order = append(order, ends())
	}
	for _, pair := range [][2]string{{"leaf", "middle"}, {"middle", "root"}} {
		if slices.Index(order, pair[0]) > slices.Index(order, pair[1]) {
			t.Errorf("%s blocks %s, and they went in this order: %v", pair[0], pair[1], order)
		}
	}
}

// G-58: what blocks an owner is looked at again and again, until it is gone; the owner's
// finalizer stays until then, and no longer. It stays because of what blocks it, which is
// known to be there: no look at all dependents is needed to find that out.
func TestG58_AnOwnerKeepsItsFinalizerForAsLongAsSomethingBlocksIt(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	first := w.make(thing{name: "first", owners: blocks(owner), finalizers: []string{hold}})
	second := w.make(thing{name: "second", owners: blocks(owner), finalizers: []string{hold}})
	w.seen(first, second)
	w.delete(owner, foreground)
	w.ending(first)
	w.ending(second)
	blocking := []string{"first", "second"}
	for n, last := range []*unstructured.Unstructured{first, second} {
		w.calm()
		w.waitsFor(owner, blocking[n:]...)
		if live := w.get(owner); live == nil || !slices.Contains(live.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			t.Fatalf("%s blocks it, and it is now %v", last.GetName(), live)
		}
		w.patch(last, map[string]any{"metadata": map[string]any{"finalizers": nil}})
		w.goes(last)
	}
	w.goes(owner)
}

// waitsFor waits until the collector has last decided that an owner is blocked by these
// dependents, and checks that it has decided nothing else since the owner is being deleted.
func (w *world) waitsFor(owner *unstructured.Unstructured, names ...string) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		entries := w.collector.Records(owner.GetUID())
		if len(entries) == 0 {
			return fmt.Errorf("nothing was decided about %s", owner.GetName())
		}
		for _, e := range entries {
			if e.Reason != decide.DependentsRemain {
				w.Fatalf("%s was decided on with the reason %s: %v", owner.GetName(), e.Reason, e)
			}
		}
		var got []string
		for _, b := range slices.MaxFunc(entries, func(a, b record.Entry) int { return a.Time.Compare(b.Time) }).WaitsFor {
			got = append(got, b.Object.Name)
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			return fmt.Errorf("%s waits for %v; want %v", owner.GetName(), got, names)
		}
		return nil
	})
}

// ends watches which objects go from now on, and returns a function that waits for the next.
func (w *world) ends() func() string {
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
	late := time.After(patience)
	return func() string {
		w.Helper()
		for {
			select {
			case event := <-stream.ResultChan():
				if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Deleted {
					return o.GetName()
				}
			case <-late:
				w.Fatal("nothing goes")
			}
		}
	}
}

func TestScenario41_G62_AWaitingOwnerIsNotBlockedByWhoHasAnother(t *testing.T) {
	w := newWorld(t)
	waiting, solid := w.make(thing{name: "waiting"}), w.make(thing{name: "solid"})
	shared := w.make(thing{name: "shared", owners: blocks(waiting, solid)})
	w.seen(shared)
	w.delete(waiting, foreground)
	w.goes(waiting)
	w.ownedBy(shared, "solid")
	w.stays(shared)
}

func TestScenario42_NonBlockingReferencesDoNotBlock(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	unset := w.make(thing{name: "unset", owners: owns(owner), finalizers: []string{hold}})
	no := owns(owner)
	no[0].BlockOwnerDeletion = ptr.To(false)
	unblocking := w.make(thing{name: "no", owners: no, finalizers: []string{hold}})
	w.seen(unset, unblocking)
	w.delete(owner, foreground)
	w.goes(owner)
	for _, o := range []*unstructured.Unstructured{unset, unblocking} {
		if live := w.get(o); live == nil {
			t.Errorf("%s is gone in spite of its finalizer", o.GetName())
		}
	}
}

func TestScenario44_BlockingReferencesBlock(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	held := w.make(thing{name: "held", owners: blocks(owner), finalizers: []string{hold}})
	w.seen(held)
	w.delete(owner, foreground)
	w.ending(held)
	w.calm()
	if w.get(owner) == nil {
		t.Fatal("the owner did not wait for the dependent that blocks it")
	}
	w.patch(held, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.goes(held, owner)
}

func TestScenario43_3_4_ASecondForegroundDeleteOfAHeldObject(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner", finalizers: []string{hold}})
	for range 2 {
		w.delete(owner, foreground)
		devtest.Eventually(t, patience, func() error {
			if live := w.get(owner); len(live.GetFinalizers()) != 1 {
				return fmt.Errorf("finalizers are %v", live.GetFinalizers())
			}
			return nil
		})
	}
	w.patch(owner, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.goes(owner)
}

func TestScenario57_G64_3_19_ACycleOfThreeIsCollectedByUnblockingOneEdge(t *testing.T) {
	w := newWorld(t)
	var ring []*unstructured.Unstructured
	for i := range 3 {
		ring = append(ring, w.make(thing{name: fmt.Sprintf("ring-%d", i), kind: pod}))
	}
	for i, o := range ring {
		w.patch(o, map[string]any{"metadata": map[string]any{"ownerReferences": blocks(ring[(i+1)%3])}})
	}
	devtest.Eventually(t, patience, func() error {
		for _, o := range ring {
			if len(w.owners(o)) != 1 {
				return fmt.Errorf("%s has no owner yet", o.GetName())
			}
		}
		return nil
	})
	w.delete(ring[0], foreground)
	w.goes(ring...)
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

func TestAnObjectThatOwnsItselfIsCollected(t *testing.T) {
	w := newWorld(t)
	self := w.make(thing{name: "self"})
	w.patch(self, map[string]any{"metadata": map[string]any{"ownerReferences": blocks(self)}})
	w.delete(self, foreground)
	w.goes(self)
}

func TestG61_ForegroundDeletionDoesNotWaitForOtherFinalizers(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner", finalizers: []string{hold, "test.gleaner.dev/other"}})
	dependent := w.make(thing{name: "dependent", owners: blocks(owner)})
	w.seen(dependent)
	w.delete(owner, foreground)
	w.goes(dependent)
	devtest.Eventually(t, patience, func() error {
		live := w.get(owner)
		if got := live.GetFinalizers(); len(got) != 2 || got[0] != hold { // G-57: the others and their order are kept
			return fmt.Errorf("finalizers are %v", got)
		}
		return nil
	})
}

func TestA09_ASecondDeleteTurnsForegroundIntoOrphan(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	held := w.make(thing{name: "held", owners: blocks(owner), finalizers: []string{hold}})
	w.seen(held)
	w.delete(owner, foreground)
	w.ending(held)
	w.delete(owner, orphan)
	w.goes(owner)
	w.ownedBy(held)
}

// A dependent that is made just before its owner's deletion may not have
// reached the graph. 3.16 and 3.17: the owner is let go only when nothing like
// it is left; the built-in collector would orphan, or wait for, what it knows.
func TestBarrier_ADependentMadeJustBeforeIsNotMissed(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{"3.16 foreground": foreground, "3.17 orphan": orphan} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			first := w.make(thing{name: "first"})
			w.make(thing{name: "known", owners: blocks(first)}) // the kinds are known to belong together
			for i := range 20 {
				owner := w.make(thing{name: fmt.Sprintf("owner-%d", i)})
				dependent := w.make(thing{name: fmt.Sprintf("dependent-%d", i), owners: blocks(owner), finalizers: []string{hold}})
				w.delete(owner, policy)
				if policy == orphan {
					w.goes(owner)
					w.ownedBy(dependent)
					continue
				}
				w.ending(dependent)
				if w.get(owner) == nil {
					t.Fatal("the owner went before the dependent that blocks it")
				}
			}
		})
	}
}
