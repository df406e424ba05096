package collector

import (
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

func TestReplaced_UntilTheObjectChangesOrTheWatchIsLate(t *testing.T) {
	id, start := graph.IDOf("a"), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		resourceVersion string
		after           time.Duration
		want            bool
	}{
		"the state that was replaced": {"7", replacedTimeout - 1, true},
		"too long ago":                {"7", replacedTimeout, false},
		"another state":               {"8", 0, false},
	} {
		var r replaced
		r.add(id, "7", start)
		for range 2 {
			if got := r.has(id, c.resourceVersion, start.Add(c.after)); got != c.want {
				t.Errorf("%s: got %t", name, got)
			}
		}
		if kept := len(r.of) != 0; kept != c.want {
			t.Errorf("%s: kept %t", name, kept)
		}
	}
	var r replaced
	for i := range uint64(maxReplaced + 1) {
		r.add(graph.ID{byte(i), byte(i >> 8)}, "7", start)
	}
	if r.forget(id); len(r.of) > maxReplaced {
		t.Errorf("%d states are remembered", len(r.of))
	}
}
