package faults

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// emptyList is of a time that will not come.
const emptyList = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"99999999"},"items":[]}`

// What happens while nothing can be watched is found by the list, or by the
// watch, that comes after. Each fault has a type of its own.
func TestAWatchThat(t *testing.T) {
	type breakdown struct {
		verbs  []string
		happen happening
		ahead  bool // lists are of a time that will not come: a watch that began there would wait for it
	}
	first := newWorld(t)
	for name, c := range map[string]breakdown{
		"is closed again and again": {[]string{"watch"}, dropped, false},
		"can't be opened: 410":      {[]string{"watch"}, expired, false},
		"has expired":               {[]string{"watch"}, expiredWithin, false},
		"is refused: 503":           {[]string{"watch", "list"}, unavailable, false},
		"is refused: 404 page":      {[]string{"watch", "list"}, page(http.StatusNotFound, "text/html", "<h1>404</h1>"), false},
		"answers a page with 200":   {[]string{"watch", "list"}, page(http.StatusOK, "text/html", "<h1>log in</h1>"), false},
		"answers with nothing":      {[]string{"watch", "list"}, page(http.StatusOK, "application/json", `{}`), false},
		"answers an empty list":     {[]string{"watch", "list"}, page(http.StatusOK, "application/json", emptyList), true},
		"is cut off":                {[]string{"watch"}, brokenWithin, false},
	} {
		w := worldOn(t, first.stage)
		w.Log(name)
		k := w.define(newType())
		owner, gone := w.make(thing{name: "owner", kind: k}), w.make(thing{name: "gone", kind: k})
		kept, lost := w.make(thing{name: "kept", owners: owns(owner)}), w.make(thing{name: "lost", owners: owns(gone)})
		inside := w.make(thing{name: "inside", kind: k, owners: owns(gone)})
		w.seen(owner, gone, kept, lost, inside)
		fault := w.proxy.fails(t, -1, ofGroup(k.resource.Group, c.verbs...), c.happen)
		w.proxy.CutWatches(k.resource.Resource)
		fault.happened(t, 2)
		// All of this happens unseen.
		w.delete(gone, background)
		late := w.make(thing{name: "late", kind: k})
		below := w.make(thing{name: "below", owners: owns(late)})
		again := w.make(thing{name: "gone", kind: k})
		beside := w.make(thing{name: "beside", owners: append(owns(gone), owns(again)...)})
		fault.happened(t, fault.Count()+1)
		w.stays(owner, kept, late, below, again, beside)
		if c.ahead {
			watches := w.proxy.fails(t, -1, ofGroup(k.resource.Group, "watch"), c.happen)
			fault.Lift()
			watches.happened(t, 3) // the last of them after a list that is true
			fault = watches
		}
		fault.Lift()
		w.goes(lost, inside)
		w.ownedBy(beside, "gone")
		w.stays(owner, kept, late, below, again, beside)
		w.delete(late, foreground)
		w.delete(owner, background)
		w.goes(late, below, owner, kept)
	}
}

// All watches end at once, several times, while much is to be done.
func TestACascadeComesThroughWatchesThatEndAllTheTime(t *testing.T) {
	w := newWorld(t)
	f := w.family(30)
	w.seen(f.owners...)
	f.fall()
	for range 8 {
		eventually(t, func() error {
			if w.proxy.Watching(configMap.resource.Resource) == 0 {
				return errors.New("ConfigMaps are not watched again yet")
			}
			return nil
		})
		w.proxy.CutWatches("")
	}
	f.end()
}

// 3.4: a list that shows an owner in another way of being deleted than the
// watch had shown it, with nothing in between.
func Test3_4_ARelistBetweenTwoDeletesLosesNoWork(t *testing.T) {
	w := newWorld(t)
	k := w.define(newType())
	owner := w.make(thing{name: "owner", kind: k, finalizers: []string{hold}})
	var dependents []*unstructured.Unstructured
	for i := range 3 {
		dependents = append(dependents, w.make(thing{name: fmt.Sprintf("dependent-%d", i), owners: blocks(owner), finalizers: []string{hold}}))
	}
	w.seen(owner)
	w.seen(dependents...) // an owner does not wait for the first of their kind that are not seen (G-63)
	w.delete(owner, foreground)
	for _, o := range dependents {
		w.ends(o)
	}
	fault := w.proxy.fails(t, -1, ofGroup(k.resource.Group, "watch", "list"), unavailable)
	w.proxy.CutWatches(k.resource.Resource)
	fault.happened(t, 1)
	w.delete(owner, background)
	w.delete(owner, orphan)
	fault.Lift()
	for _, o := range dependents {
		w.ownedBy(o)
		w.frees(o)
	}
	w.frees(owner)
	w.goes(owner)
}
