package gather_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gather"
)

// Which types a group version has is not known if discovery has failed for it since the
// start. An owner that orphans is held then; one that waits is not.
func TestAnOrphaningOwnerWaitsForAGroupThatDiscoveryHasNeverNamed(t *testing.T) {
	lists := discovered()
	partial := catalog.Build(nil, lists[:1], catalog.Settings{
		Local: local, Failed: map[schema.GroupVersion]error{widget.GroupVersion(): http.ErrServerClosed},
	})
	down := func(context.Context, schema.GroupVersion) error { return http.ErrServerClosed }
	for claim, c := range map[string]struct {
		empty func(context.Context, schema.GroupVersion) error
		want  confirmation
	}{
		"it can't be asked":  {nil, confirmation{Failed: true}},
		"it does not answer": {down, confirmation{Failed: true}},
		"it has no types":    {func(context.Context, schema.GroupVersion) error { return nil }, confirmation{Confirmed: true}},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t, views(orphaning("a", "ns", pod), waiting("b", "ns", pod)), nobody)
			w.Barrier = gather.NewBarrier(w.Graph, gather.Sources{
				Catalog: func() *catalog.Catalog { return partial }, Empty: c.empty,
			}, w.api.client(t), nobody, w.clock.now)
			everythingBut(w, "")
			round(t, w, "a", "b")
			if diff := cmp.Diff(c.want, left(w.Barrier, "a")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(confirmation{Confirmed: true}, confirmed(w.Barrier, "b")); diff != "" {
				t.Errorf("an owner that waits: %s", diff)
			}
		})
	}
}
