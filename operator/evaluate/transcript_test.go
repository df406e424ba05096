package evaluate_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

// evaluatorFunc is an Asker with fixed verdicts.
type evaluatorFunc struct{ *fixed.Policy }

// EvaluateMetered implements policies.Evaluator.
func (a evaluatorFunc) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	v, err := a.Evaluate(ctx, r)
	return policies.Evaluation{Verdict: v, Fuel: 5}, err
}

// A transcript allows a module to be evaluated again. Fixed verdicts have none, so they cost
// nothing.
func TestEvaluate_RecordsOnlyExchangesOfModules(t *testing.T) {
	verdicts, err := fixed.New("keep", map[hostabi.Hook][]byte{hostabi.HookCollect: []byte(`{"decision": "Orphan"}`)})
	if err != nil {
		t.Fatal(err)
	}
	served := catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}},
	}}}, catalog.Settings{})
	for name, c := range map[string]struct {
		module string
		want   []hostabi.Decision
	}{
		"fixed verdicts": {"", nil},
		"a module":       {"ClusterPolicyModule keep", []hostabi.Decision{hostabi.DecisionOrphan}},
	} {
		t.Run(name, func(t *testing.T) {
			set := policies.NewSet([]*policies.Policy{{
				Name: "keep", Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}}, Evaluator: evaluatorFunc{verdicts},
				Hooks: []hostabi.Hook{hostabi.HookCollect}, Needs: policies.NeedsReference, Enforce: true, Module: c.module,
			}})
			evaluator := evaluate.Evaluator{
				Policies: func() *policies.Set { return set }, Default: builtin.Policy{}, Now: time.Now,
				Catalog:          func() *catalog.Catalog { return served },
				Reader:           modulecall.NewLiveReader(&rest.Config{Host: "https://127.0.0.1:1"}), // nothing has to be read
				DependentsByKind: func(graph.ID) []graph.KindCount { return nil },
			}
			result, err := evaluator.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookCollect, Facts: decide.Facts{
				Object: graph.Object{UID: "u", Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "ns", Name: "a"},
			}})
			if err != nil || len(result.Evaluations) != 1 {
				t.Fatalf("the opinion is %+v, %v", result, err)
			}
			var got []hostabi.Decision
			for _, e := range result.Evaluations[0].Exchanges {
				got = append(got, e.Verdict.Decision)
				if e.Request.Object.Metadata.Name != "a" || e.Fuel != 5 {
					t.Errorf("the exchange is %+v", e)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
