package consult_test

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
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

// asker makes an Asker of fixed verdicts.
type asker struct{ *fixed.Policy }

// Ask implements policies.Asker.
func (a asker) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	v, err := a.Evaluate(ctx, r)
	return policies.Answer{Verdict: v, Fuel: 5}, err
}

// A transcript is for asking a module again: fixed verdicts need none, and cost
// none.
func TestOnlyWhatAModuleWasAskedIsWrittenDown(t *testing.T) {
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
				Name: "keep", Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}}, Asker: asker{verdicts},
				Hooks: []hostabi.Hook{hostabi.HookCollect}, Needs: policies.NeedsReference, Enforce: true, Module: c.module,
			}})
			consultant := consult.Consultant{
				Policies: func() *policies.Set { return set }, Default: builtin.Policy{}, Now: time.Now,
				Catalog: func() *catalog.Catalog { return served },
				Reader:  consult.NewLive(&rest.Config{Host: "https://127.0.0.1:1"}), // nothing has to be read
				ByKind:  func(graph.ID) []graph.KindCount { return nil },
			}
			opinion, err := consultant.Ask(t.Context(), consult.Question{Hook: hostabi.HookCollect, Facts: decide.Facts{
				Object: graph.Object{UID: "u", Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "ns", Name: "a"},
			}})
			if err != nil || len(opinion.Asked) != 1 {
				t.Fatalf("the opinion is %+v, %v", opinion, err)
			}
			var got []hostabi.Decision
			for _, e := range opinion.Asked[0].Exchanges {
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
