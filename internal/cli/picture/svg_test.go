package picture_test

import (
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/picture"
	"github.com/gleaner-dev/gleaner/operator/record"
)

func TestWrite_ShowsStatesAndNumbers(t *testing.T) {
	o := &ownership.Ownership{Objects: []ownership.Object{
		{Object: record.Object{Kind: "ReplicaSet", Namespace: "shop", Name: "web", UID: "rs"}, Terminating: "Foreground", Similar: 49},
		{Object: record.Object{Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "pod"}, Parent: "rs", Depth: 1, Finalizers: []string{"example.com/f"}},
	}}
	var svg strings.Builder
	if err := picture.Write(&svg, o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ReplicaSet · shop", "terminating, in the foreground", "and 49 similar ones", "finalizer example.com/f"} {
		if !strings.Contains(svg.String(), ">"+want+"<") {
			t.Errorf("the picture lacks %q:\n%s", want, svg.String())
		}
	}
}
