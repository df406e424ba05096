package faults

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// a second DELETE changes what is to become of dependents that have not
// been collected yet. They are kept from it by an API server that is busy.
func TestA09_ASecondDeleteChangesTheFateOfTheDependents(t *testing.T) {
	for _, c := range []struct {
		first, second metav1.DeletionPropagation
		goes          bool
	}{
		{foreground, orphan, false}, {orphan, background, true}, {background, foreground, true},
		{background, orphan, false}, {orphan, foreground, true}, {foreground, background, true},
	} {
		t.Run(fmt.Sprintf("%s to %s", c.first, c.second), func(t *testing.T) {
			w := newWorld(t)
			owner := w.make(thing{name: "owner", finalizers: []string{hold}})
			var dependents []*unstructured.Unstructured
			for i := range 5 {
				dependents = append(dependents, w.make(thing{name: fmt.Sprintf("dependent-%d", i), owners: blocks(owner)}))
			}
			w.seen(dependents...)
			// Neither deletes nor patches of dependents come through at first.
			busy := w.proxy.fails(t, -1, func(c call) bool {
				return in(w.ns, "delete", "patch")(c) && c.Name != owner.GetName()
			}, unavailable)
			w.delete(owner, c.first)
			if c.first != background { // then nothing is to be done yet
				busy.happened(t, 5)
			}
			w.delete(owner, c.second)
			w.settled(owner, c.second)
			busy.Lift()
			late := w.make(thing{name: "late", owners: blocks(owner)})
			dependents = append(dependents, late)
			switch {
			case c.goes && c.second == background: // while it stands, they do
				w.stays(dependents...)
				w.frees(owner)
				w.goes(append(dependents, owner)...)
			case c.goes:
				w.goes(dependents...)
				w.frees(owner)
				w.goes(owner)
			default:
				for _, o := range dependents {
					w.ownedBy(o)
				}
				w.frees(owner)
				w.goes(owner)
				w.stays(dependents...)
			}
		})
	}
}

// settled waits until the collector can't but know of a second DELETE: its
// watch has brought it, and what was read before is too old to be used.
func (w *world) settled(owner *unstructured.Unstructured, policy metav1.DeletionPropagation) {
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
		return fmt.Errorf("the graph does not have %s as %s", owner.GetName(), policy)
	})
	pause(w.Context())
}
