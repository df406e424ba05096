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

// If discovery of a group version has failed since the start, its types are unknown. Then an
// owner that orphans is kept, and one in foreground deletion is not.
func TestBarrier_OrphaningOwnerWaitsForAnUnknownGroup(t *testing.T) {
	lists := discovered()
	partial := catalog.Build(nil, lists[:1], catalog.Settings{
		Local: local, Failed: map[schema.GroupVersion]error{widget.GroupVersion(): http.ErrServerClosed},
	})
	down := func(context.Context, schema.GroupVersion) error { return http.ErrServerClosed }
	for claim, c := range map[string]struct {
		empty func(context.Context, schema.GroupVersion) error
		want  confirmation
	}{
		"discovery fails":    {nil, confirmation{Failed: true}},
		"it does not answer": {down, confirmation{Failed: true}},
		"it has no types":    {func(context.Context, schema.GroupVersion) error { return nil }, confirmation{Confirmed: true}},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newFixture(t, views(orphaning("a", "ns", pod), waiting("b", "ns", pod)), noOwner)
			w.Barrier = gather.NewBarrier(w.Graph, gather.Sources{
				Catalog: func() *catalog.Catalog { return partial }, VerifyEmpty: c.empty,
			}, w.api.client(t), noOwner, w.clock.now)
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
