package main

import (
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/explain"
	holder "github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

func TestExplain_SaysWhatToDoAboutAFinalizerOnlyIfItIsInTheWay(t *testing.T) {
	for state, want := range map[explain.State]bool{explain.There: false, explain.BeingDeleted: true} {
		t.Run(string(state), func(t *testing.T) {
			var out strings.Builder
			e := explain.Explanation{State: state, Holders: []holder.Holder{{Finalizer: "kubernetes.io/pvc-protection", Do: "delete the pods"}}}
			if err := showExplanation(&out, kubectl.Palette{}, e); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "kubernetes.io/pvc-protection") || strings.Contains(out.String(), "delete the pods") != want {
				t.Errorf("it says what to do: want %t:\n%s", want, out.String())
			}
		})
	}
}
