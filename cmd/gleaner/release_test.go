package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/finalize"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// They are written in two places, since what releases must not need the operator.
func TestReleaseKnowsTheNamesThatTheOperatorUses(t *testing.T) {
	if release.InUse != modules.InUse {
		t.Errorf("the finalizer of resources is %s, and the operator's %s", release.InUse, modules.InUse)
	}
	if release.Notes != finalize.Annotation {
		t.Errorf("the annotation is %s, and the operator's %s", release.Notes, finalize.Annotation)
	}
}

// Without it nobody would take the finalizer off what is elsewhere.
func TestAClusterFinalizerIsNotFreedAsLongAsObjectsMayHaveItsFinalizer(t *testing.T) {
	for claim, c := range map[string]struct {
		target  target
		staying int
		freed   bool
	}{
		"nothing has it any more":            {target{}, 0, true},
		"some keep it":                       {target{}, 1, false},
		"only one namespace was looked over": {target{narrow: true}, 0, false},
	} {
		if why := c.target.needed(c.staying); (why == "") != c.freed {
			t.Errorf("%s: it stays, since %q", claim, why)
		}
	}
}

func TestRelease_AsksInWholeSentences(t *testing.T) {
	holds := func(n int) []release.Held { return make([]release.Held, n) }
	admissions := func(n int) []release.Admission { return make([]release.Admission, n) }
	for want, got := range map[string]string{
		"Release 1 object?":                                  question(holds(1), nil),
		"Release 2 objects?":                                 question(holds(2), nil),
		"Remove 1 admission object?":                         question(nil, admissions(1)),
		"Remove 2 admission objects, and release 1 object?":  question(holds(1), admissions(2)),
		"Remove 1 admission object, and release 12 objects?": question(holds(12), admissions(1)),
	} {
		if got != want {
			t.Errorf("it asks %q, want %q", got, want)
		}
	}
}

func TestRelease_SaysOfWhichTypesWhatWasRemoved(t *testing.T) {
	held := func(uid, resource string, finalizers ...string) release.Held {
		return release.Held{UID: types.UID(uid), Resource: schema.ParseGroupResource(resource).WithVersion("v1"), Finalizers: finalizers}
	}
	for want, released := range map[string][]release.Held{
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
