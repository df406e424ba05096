package graph_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

func TestCoordinates_StringOfAClusterScopedObject(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	for want, c := range map[string]graph.Coordinates{
		"Deployment shop/web": {Kind: kind, Namespace: "shop", Name: "web", UID: "1"},
		"Deployment web":      {Kind: kind, Name: "web", UID: "1"},
	} {
		if got := c.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
