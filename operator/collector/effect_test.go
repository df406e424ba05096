package collector

import (
	"testing"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

func TestEffectOf_KnowsEachAction(t *testing.T) {
	for _, c := range []struct {
		action decide.Action
		want   writer.Effect
	}{
		{decide.Delete{}, writer.Deletes},
		{decide.Propagate{}, writer.Deletes},
		{decide.DropReferences{}, writer.Orphans},
		{decide.RemoveFinalizer{}, writer.Releases},
		{decide.Unblock{}, writer.Releases},
		{decide.AddFinalizer{}, writer.Protects},
		{decide.SaveState{}, writer.State},
		{decide.RemoveState{}, writer.State},
		{nil, ""},
	} {
		if got := effectOf(c.action); got != c.want {
			t.Errorf("%T: %q, want %q", c.action, got, c.want)
		}
	}
}
