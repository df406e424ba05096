package collector_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Whether the last Pod of an owner with many other dependents is gone is not found out at each event, which would take long
// under the lock: the owner is looked at again after a while.
func TestOrder_OfManyDependentsGoesOnAfterAWhile(t *testing.T) {
	w := newWorld(t)
	govern(w, w.lines("Deployment.apps propagate")[0], `{"decision": "Foreground", "order": [[{"kind": "Pod"}]]}`)
	w.given("Deployment.apps shop/web")
	for i := range graph.ManyDependents + 1 {
		w.given(fmt.Sprintf("ConfigMap shop/c%d owners=(Deployment.apps:web::block)", i))
	}
	w.given("Pod shop/pod owners=(Deployment.apps:web)")
	w.settle()
	w.delete(words{plain: []string{"web", "Background"}})
	w.settle()
	if out := w.out.String(); strings.Count(out, "DELETE") != 1 || !strings.Contains(out, "DELETE v1/pods shop/pod") || len(w.later) != 1 {
		t.Fatalf("not one Pod was deleted, or nothing is looked at later: %v\n%s", w.later, out[max(len(out)-2000, 0):])
	}
	w.out.Reset()
	commands["retry"](w, words{}, "")
	w.settle()
	if n := strings.Count(w.out.String(), "DELETE"); n != graph.ManyDependents+1 {
		t.Errorf("%d were deleted after that", n)
	}
}
