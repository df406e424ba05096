package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

func TestSeriesGoWithWhatTheyAreAbout(t *testing.T) {
	w := newWorld(t)
	count := func() map[string]int {
		return map[string]int{
			"decisions": seriesOf(w.loop.metrics.decisions), "policies": seriesOf(w.loop.metrics.policies),
		}
	}
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: "gone.example.com", Version: "v1", Kind: "Gone"}} {
		w.loop.note(decide.Facts{Object: graph.Object{Kind: gvk, UID: "u", Name: "o"}}, decide.Plan{Reason: decide.OwnersAbsent}, consult.Opinion{}, outcome{})
	}
	w.loop.count(record.Entry{Asked: []record.Asked{{Policy: "ClusterGCPolicy gone", Decision: "Delete"}}})
	if diff := cmp.Diff(map[string]int{"decisions": 2, "policies": 1}, count()); diff != "" {
		t.Fatalf("series at first (-want +got):\n%s", diff)
	}
	for range 2 {
		w.loop.forgetSeries()
		if diff := cmp.Diff(map[string]int{"decisions": 1, "policies": 0}, count()); diff != "" {
			t.Errorf("series of what is there (-want +got):\n%s", diff)
		}
	}
}

func seriesOf(c prometheus.Collector) int {
	metrics := make(chan prometheus.Metric, 100)
	c.Collect(metrics)
	return len(metrics)
}
