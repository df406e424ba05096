package permissions

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMergeVerbs(t *testing.T) {
	given := []MissingPermission{
		{Verb: "get", Resource: "pods", Reason: "a"}, {Verb: "list", Resource: "pods", Reason: "a"}, {Verb: "watch", Resource: "pods", Reason: "b"},
		{Verb: "watch", Resource: "pods", Namespace: "shop", Reason: "b"},
	}
	var got []string
	for _, m := range MergeVerbs(given) {
		got = append(got, m.String())
	}
	want := []string{"get, list pods in all namespaces", "watch pods in all namespaces", "watch pods in namespace shop"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
