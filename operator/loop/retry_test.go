package loop

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// G-41 asks for up to 1000 s; 3.28 for a minute at most.
func TestG41_3_28_ARetryComesLaterEachTimeButWithinAMinute(t *testing.T) {
	l, err := New(Options{Config: &rest.Config{Host: "127.0.0.1:1"}, Evaluator: builtin.Policy{}})
	if err != nil {
		t.Fatal(err)
	}
	id, last := graph.ID{1}, time.Duration(0)
	for range 30 {
		next := l.backoff.When(id)
		if next < last || next > time.Minute {
			t.Fatalf("after %s comes %s", last, next)
		}
		last = next
	}
	if last != time.Minute {
		t.Errorf("the longest is %s", last)
	}
	l.backoff.Forget(id)
	if next := l.backoff.When(id); next != 5*time.Millisecond {
		t.Errorf("anew it begins with %s", next)
	}
}
