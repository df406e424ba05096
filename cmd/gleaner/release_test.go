package main

import (
	"testing"

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
