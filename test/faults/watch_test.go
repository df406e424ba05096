package faults

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// emptyList has a resourceVersion from the future.
const emptyList = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"99999999"},"items":[]}`

// Events that are missed without a watch are found by the next list or
// watch. Each fault has a type of its own.
func TestWatch_That(t *testing.T) {
	type breakdown struct {
		verbs  []string
		happen faultHandler
		ahead  bool // lists have a resourceVersion from the future, for which a watch would wait
	}
	first := newEnv(t)
	for name, c := range map[string]breakdown{
		"is closed again and again": {[]string{"watch"}, droppedConnection, false},
		"can't be opened: 410":      {[]string{"watch"}, expired, false},
		"has expired":               {[]string{"watch"}, expiredInWatch, false},
		"is refused: 503":           {[]string{"watch", "list"}, unavailable, false},
		"is refused: 404 page":      {[]string{"watch", "list"}, page(http.StatusNotFound, "text/html", "<h1>404</h1>"), false},
		"returns a page with 200":   {[]string{"watch", "list"}, page(http.StatusOK, "text/html", "<h1>log in</h1>"), false},
		"returns an empty object":   {[]string{"watch", "list"}, page(http.StatusOK, "application/json", `{}`), false},
		"returns an empty list":     {[]string{"watch", "list"}, page(http.StatusOK, "application/json", emptyList), true},
		"is cut off":                {[]string{"watch"}, truncatedWatch, false},
	} {
		w := newEnvOn(t, first.testbed)
		w.Log(name)
		k := w.createType(newType())
		owner, gone := w.create(objectSpec{name: "owner", kind: k}), w.create(objectSpec{name: "gone", kind: k})
		kept, lost := w.create(objectSpec{name: "kept", owners: ownerRefs(owner)}), w.create(objectSpec{name: "lost", owners: ownerRefs(gone)})
		inside := w.create(objectSpec{name: "inside", kind: k, owners: ownerRefs(gone)})
		w.waitForGraph(owner, gone, kept, lost, inside)
		fault := w.proxy.fail(t, -1, forGroup(k.resource.Group, c.verbs...), c.happen)
		w.proxy.CutWatches(k.resource.Resource)
		fault.waitForCount(t, 2)
		// The following events are missed.
		w.delete(gone, background)
		late := w.create(objectSpec{name: "late", kind: k})
		below := w.create(objectSpec{name: "below", owners: ownerRefs(late)})
		again := w.create(objectSpec{name: "gone", kind: k})
		control := w.create(objectSpec{name: "control", owners: append(ownerRefs(gone), ownerRefs(again)...)})
		fault.waitForCount(t, fault.Count()+1)
		w.expectKept(owner, kept, late, below, again, control)
		if c.ahead {
			watches := w.proxy.fail(t, -1, forGroup(k.resource.Group, "watch"), c.happen)
			fault.Lift()
			watches.waitForCount(t, 3) // the last one after a correct list
			fault = watches
		}
		fault.Lift()
		w.waitForDeletion(lost, inside)
		w.waitForOwners(control, "gone")
		w.expectKept(owner, kept, late, below, again, control)
		w.delete(late, foreground)
		w.delete(owner, background)
		w.waitForDeletion(late, below, owner, kept)
	}
}

// All watches end together, several times, during cascades.
func TestCascade_SurvivesInterruptedWatches(t *testing.T) {
	w := newEnv(t)
	f := w.createCascade(30)
	w.waitForGraph(f.owners...)
	f.deleteOwners()
	for range 8 {
		eventually(t, func() error {
			if w.proxy.Watching(configMap.resource.Resource) == 0 {
				return errors.New("no watch of ConfigMaps yet")
			}
			return nil
		})
		w.proxy.CutWatches("")
	}
	f.expectDone()
}

// 3.4: a list shows an owner with another deletion finalizer than the
// watch did, with no event in between.
func Test3_4_RelistBetweenTwoDeletes_LosesNoWork(t *testing.T) {
	w := newEnv(t)
	k := w.createType(newType())
	owner := w.create(objectSpec{name: "owner", kind: k, finalizers: []string{testFinalizer}})
	var dependents []*unstructured.Unstructured
	for i := range 3 {
		dependents = append(dependents, w.create(objectSpec{name: fmt.Sprintf("dependent-%d", i), owners: blockingRefs(owner), finalizers: []string{testFinalizer}}))
	}
	w.waitForGraph(owner)
	w.waitForGraph(dependents...) // an owner does not wait for unseen dependents if they are the first of their kind (G-63)
	w.delete(owner, foreground)
	for _, o := range dependents {
		w.waitForTerminating(o)
	}
	fault := w.proxy.fail(t, -1, forGroup(k.resource.Group, "watch", "list"), unavailable)
	w.proxy.CutWatches(k.resource.Resource)
	fault.waitForCount(t, 1)
	w.delete(owner, background)
	w.delete(owner, orphan)
	fault.Lift()
	for _, o := range dependents {
		w.waitForOwners(o)
		w.removeFinalizers(o)
	}
	w.removeFinalizers(owner)
	w.waitForDeletion(owner)
}
