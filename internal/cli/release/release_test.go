package release

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/release"
)

// Without it nobody would take the finalizer off what is elsewhere.
func TestRelease_KeepsClusterFinalizerWhileObjectsMayHaveIt(t *testing.T) {
	for claim, c := range map[string]struct {
		target  target
		staying int
		freed   bool
	}{
		"nothing has it any more":            {target{}, 0, true},
		"some keep it":                       {target{}, 1, false},
		"only one namespace was looked over": {target{namespaceOnly: true}, 0, false},
	} {
		if why := c.target.reasonToKeep(c.staying); (why == "") != c.freed {
			t.Errorf("%s: it stays, since %q", claim, why)
		}
	}
}

func TestRelease_ConfirmationPrompt(t *testing.T) {
	holds := func(n int) []release.HeldObject { return make([]release.HeldObject, n) }
	admissions := func(n int) []release.AdmissionObject { return make([]release.AdmissionObject, n) }
	for want, got := range map[string]string{
		"Release 1 object?":                                  confirmationPrompt(holds(1), nil),
		"Release 2 objects?":                                 confirmationPrompt(holds(2), nil),
		"Remove 1 admission object?":                         confirmationPrompt(nil, admissions(1)),
		"Remove 2 admission objects, and release 1 object?":  confirmationPrompt(holds(1), admissions(2)),
		"Remove 1 admission object, and release 12 objects?": confirmationPrompt(holds(12), admissions(1)),
	} {
		if got != want {
			t.Errorf("it asks %q, want %q", got, want)
		}
	}
}

func TestRelease_Summary(t *testing.T) {
	held := func(uid, resource string, finalizers ...string) release.HeldObject {
		return release.HeldObject{UID: types.UID(uid), Resource: schema.ParseGroupResource(resource).WithVersion("v1"), Finalizers: finalizers}
	}
	for want, released := range map[string][]release.HeldObject{
		"No object was released.": nil,
		"Released 1 object (configmaps: 1): removed gleaner.dev/hold from 1.": {held("a", "configmaps", "gleaner.dev/hold")},
		"Released 3 objects (configmaps: 1, deployments.apps: 2): removed gleaner.dev/hold from 3, gleaner.dev/in-use from 1.": {
			held("a", "deployments.apps", "gleaner.dev/hold"), held("b", "configmaps", "gleaner.dev/hold", "gleaner.dev/in-use"),
			held("c", "deployments.apps", "gleaner.dev/hold"), held("a", "deployments.apps", "gleaner.dev/hold"), // it was put back
		},
	} {
		if got := releaseSummary(released); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
