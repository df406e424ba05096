package page_test

import (
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/ui/page"
)

func TestCommands_AreSetApartFromTheSentence(t *testing.T) {
	for text, want := range map[string]string{
		"no command in it": "no command in it",
		"check that the operator is running (gleaner doctor); without an operator: gleaner release secrets/x -n shop": "check that the operator is running (gleaner doctor); without an operator: [gleaner release secrets/x -n shop]",
		"check that a garbage collector is running: gleaner doctor":                                                   "check that a garbage collector is running: [gleaner doctor]",
		"if it is gone: kubectl delete pod --force, which does not stop the containers":                               "if it is gone: [kubectl delete pod --force], which does not stop the containers",
		"delete the pods that use it, listed by kubectl describe as Used By":                                          "delete the pods that use it, listed by [kubectl describe] as Used By",
		"see kubectl get apiservices for one that is not Available":                                                   "see [kubectl get apiservices] for one that is not Available",
		"run gleaner explain KIND/NAME to see; to release all: gleaner release --all --finalizer example.com/f":       "run [gleaner explain KIND/NAME] to see; to release all: [gleaner release --all --finalizer example.com/f]",
		"kubectl annotate secrets keys -n shop retry=$(date +%s) --overwrite, or change the spec":                     "[kubectl annotate secrets keys -n shop retry=$(date +%s) --overwrite], or change the spec",
		"If the node is gone: kubectl delete --force.":                                                                "If the node is gone: [kubectl delete --force].",
		"gleaner waits": "gleaner waits",
		"run gleaner stuck -n NAMESPACE to see what blocks it": "run [gleaner stuck -n NAMESPACE] to see what blocks it",
	} {
		var b strings.Builder
		for _, p := range page.Commands(text) {
			if p.Command {
				b.WriteString("[" + p.Text + "]")
				continue
			}
			b.WriteString(p.Text)
		}
		if got := b.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
