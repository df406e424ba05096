package gather_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gather"
)

// 3.17: a group that discovery has failed for since the start may have
// dependents. An orphaning owner waits until it is known, one that waits for its
// dependents does not.
func TestAnOrphaningOwnerWaitsForAGroupThatWasNeverDiscovered(t *testing.T) {
	w := newWorld(t, views(orphaning("a", "ns", pod), waiting("b", "ns", pod)), nobody)
	types := catalog.Build(nil, discovered()[:1], catalog.Settings{
		Local: local, Failed: map[schema.GroupVersion]error{widget.GroupVersion(): http.ErrServerClosed},
	})
	w.Barrier = gather.NewBarrier(w.Graph, gather.Sources{
		Catalog: func() *catalog.Catalog { return types }, Absent: nil,
	}, w.api.client(t), nobody, w.clock.now)
	everythingBut(w, "")
	round(t, w, "a", "b")
	if diff := cmp.Diff(confirmation{Failed: true}, left(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(confirmation{Confirmed: true}, confirmed(w.Barrier, "b")); diff != "" {
		t.Error(diff)
	}
	types = catalog.Build(nil, discovered()[:1], catalog.Settings{Local: local, Previous: types}) // its APIService was deleted
	round(t, w, "a")
	if diff := cmp.Diff(confirmation{Confirmed: true}, left(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
}
