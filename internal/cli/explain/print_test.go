package explain

import (
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

func TestExplain_AdvisesOnlyAboutBlockingFinalizers(t *testing.T) {
	for state, want := range map[State]bool{Exists: false, Terminating: true} {
		t.Run(string(state), func(t *testing.T) {
			var out strings.Builder
			e := Explanation{State: state, Finalizers: []finalizers.Finalizer{{Name: "kubernetes.io/pvc-protection", Advice: "delete the pods"}}}
			if err := showExplanation(&out, printer.Palette{}, e); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "kubernetes.io/pvc-protection") || strings.Contains(out.String(), "delete the pods") != want {
				t.Errorf("it says what to do: want %t:\n%s", want, out.String())
			}
		})
	}
}
