package rights

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRightsThatDifferByTheVerbAreOne(t *testing.T) {
	given := []Missing{
		{Verb: "get", Resource: "pods", Why: "a"}, {Verb: "list", Resource: "pods", Why: "a"}, {Verb: "watch", Resource: "pods", Why: "b"},
		{Verb: "watch", Resource: "pods", Namespace: "shop", Why: "b"},
	}
	var got []string
	for _, m := range Fold(given) {
		got = append(got, m.String())
	}
	want := []string{"get, list pods in all namespaces", "watch pods in all namespaces", "watch pods in namespace shop"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
