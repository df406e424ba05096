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
