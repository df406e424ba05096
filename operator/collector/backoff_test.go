package collector

import (
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
)

// G-41 asks for up to 1000 s; 3.28 for a minute at most.
func TestG41_3_28_ARetryComesLaterEachTimeButWithinAMinute(t *testing.T) {
	c := New(Options{Store: graphstore.New(time.Now)})
	id, last := graph.ID{1}, time.Duration(0)
	for range 30 {
		next := c.backoff.When(id)
		if next < last || next > time.Minute {
			t.Fatalf("after %s comes %s", last, next)
		}
		last = next
	}
	if last != time.Minute {
		t.Errorf("the longest is %s", last)
	}
	c.backoff.Forget(id)
	if next := c.backoff.When(id); next != 5*time.Millisecond {
		t.Errorf("anew it begins with %s", next)
	}
}
