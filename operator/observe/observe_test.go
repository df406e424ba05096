package observe_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/observe"
)

func TestHasObserved_OnlyAReportedOlderGenerationIsWaitedFor(t *testing.T) {
	for name, c := range map[string]struct {
		status any
		want   bool
	}{
		"no status":                        {nil, true},
		"another status":                   {map[string]any{"replicas": int64(3)}, true},
		"no generation yet":                {map[string]any{"observedGeneration": int64(0)}, true},
		"a generation that is not one":     {map[string]any{"observedGeneration": "2"}, true},
		"the generation before":            {map[string]any{"observedGeneration": int64(2)}, false},
		"the generation of the deletion":   {map[string]any{"observedGeneration": int64(3)}, true},
		"a generation that is still newer": {map[string]any{"observedGeneration": int64(4)}, true},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(3)}}}
		if c.status != nil {
			o.Object["status"] = c.status
		}
		if got := observe.HasObserved(o); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWait_DoublesAndEndsWithTheTimeout(t *testing.T) {
	var d observe.Deletions
	id, now := graph.IDOf("6f0b6c1e-0000-4000-8000-000000000001"), time.Unix(0, 0)
	var waits []time.Duration
	for range 100 {
		after, expired := d.Wait(id, now, 3*time.Second)
		if expired {
			break
		}
		waits, now = append(waits, after), now.Add(after)
	}
	ms := time.Millisecond
	want := []time.Duration{20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, 1000 * ms, 740 * ms}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
	if d.IsSettled(id) {
		t.Error("it is settled although nothing has settled it")
	}
	d.Settle(id)
	if !d.IsSettled(id) {
		t.Error("it is not settled")
	}
	d.Forget(id)
	if _, expired := d.Wait(id, now, time.Second); d.IsSettled(id) || expired {
		t.Error("it is not forgotten")
	}
}
