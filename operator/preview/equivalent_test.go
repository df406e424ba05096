package preview

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

// The operator keeps it, since policies for either resource may apply (defect 3.30).
func TestEquivalent_GovernedUnderBothKindsIsUnknown(t *testing.T) {
	var objects []*unstructured.Unstructured
	for kind, name := range map[string]string{"ConfigMap": "root", "Role": "shown", "Right": "shown"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
		o.SetNamespace("ns")
		o.SetName(name)
		o.SetUID(types.UID(name))
		if name != "root" {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "root", UID: "root"}})
		}
		objects = append(objects, o)
	}
	s, err := survey.Files(objects, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	var governing []*policies.Policy
	for _, resource := range []string{"roles", "rights"} {
		verdict, err := fixed.New(resource, map[hostabi.Hook][]byte{hostabi.HookCollect: []byte(`{"decision": "Delete"}`)})
		if err != nil {
			t.Fatal(err)
		}
		governing = append(governing, &policies.Policy{
			Name: resource, Enforce: true, Hooks: []hostabi.Hook{hostabi.HookCollect}, Needs: policies.NeedsReference, Evaluator: fixedEvaluator{verdict},
			Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{resource}}},
		})
	}
	p, err := Delete(t.Context(), Options{
		Survey: s, Targets: []graph.ID{graph.IDOf("root")}, Cascade: metav1.DeletePropagationBackground, Now: time.Now(),
		Policies: &Reading{Policies: policies.NewSet(governing)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Objects {
		if o.Name == "shown" && (o.Outcome != Waits || !strings.Contains(o.Message, "it is also served as")) {
			t.Errorf("%s %s: %s, %s", o.Kind, o.Name, o.Outcome, o.Message)
		}
	}
	if len(p.Objects) != 2 {
		t.Errorf("%d objects", len(p.Objects))
	}
}
