package recorder

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/collector"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestForget_DeletesSeriesOfRemovedKindsAndPolicies(t *testing.T) {
	now := time.Now
	r := New(Options{Records: record.NewStore(record.Limits{}), Observations: policystatus.NewObservations(now), Log: logr.Discard(), Now: now})
	count := func() map[string]int {
		return map[string]int{
			"decisions": seriesOf(t, r, "gleaner_decisions_total"), "policies": seriesOf(t, r, "gleaner_policy_answers_total"),
		}
	}
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: "gone.example.com", Version: "v1", Kind: "Gone"}} {
		r.Record(collector.Outcome{Facts: decide.Facts{Object: graph.Object{Kind: gvk, UID: "u", Name: "o"}}, Plan: decide.Plan{Reason: decide.OwnersAbsent}})
	}
	gone := &policies.Policy{Kind: "ClusterGCPolicy", Name: "gone"}
	r.Record(collector.Outcome{
		Facts: decide.Facts{Object: graph.Object{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, UID: "u", Name: "o"}}, Plan: decide.Plan{Reason: decide.OwnersAbsent},
		Evaluation: evaluate.Result{Evaluations: []evaluate.Evaluation{{Policy: gone, Verdict: hostabi.Verdict{Decision: hostabi.DecisionDelete}}}},
	})
	if diff := cmp.Diff(map[string]int{"decisions": 2, "policies": 1}, count()); diff != "" {
		t.Fatalf("series at first (-want +got):\n%s", diff)
	}
	for range 2 {
		r.Forget(Existing{
			Kind: func(gk schema.GroupKind) bool { return gk.Kind == "Pod" }, Policies: map[string]bool{}, Finalizers: map[string]bool{},
		})
		if diff := cmp.Diff(map[string]int{"decisions": 1, "policies": 0}, count()); diff != "" {
			t.Errorf("series of what is there (-want +got):\n%s", diff)
		}
	}
}

// seriesOf counts the series of a metric.
func seriesOf(t *testing.T, c prometheus.Collector, name string) int {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return len(family.GetMetric())
		}
	}
	return 0
}
