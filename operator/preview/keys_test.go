package preview

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

// The state of an object can only be verified with the operator's keys.
func TestPreview_UnverifiableStateIsUnknown(t *testing.T) {
	operators, err := statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})
	if err != nil {
		t.Fatal(err)
	}
	for claim, c := range map[string]struct {
		keys    func(context.Context) (statekey.Keys, error)
		outcome Outcome
		message string
	}{
		"with the operator's keys":         {func(context.Context) (statekey.Keys, error) { return operators, nil }, Goes, ""},
		"without the right to read them":   {func(context.Context) (statekey.Keys, error) { return statekey.Keys{}, errors.New("forbidden") }, Unknown, "verify its state annotation: forbidden"},
		"from files, where there are none": {nil, Unknown, "verify its state annotation"},
	} {
		t.Run(claim, func(t *testing.T) {
			root := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
			root.SetNamespace("ns")
			root.SetName("root")
			root.SetUID("root")
			root.SetFinalizers([]string{graph.Hold})
			root.SetDeletionTimestamp(&metav1.Time{Time: time.Now().Add(-time.Hour)})
			text, err := objectstate.State{UID: "root", ReferencesHash: objectstate.HashReferences(nil), Propagation: &objectstate.Propagation{
				Policy: "ClusterGCPolicy waits", Decision: "Background", Requested: string(hostabi.RequestedUnspecified),
			}}.Sign(operators)
			if err != nil {
				t.Fatal(err)
			}
			root.SetAnnotations(map[string]string{objectstate.Annotation: text})
			s, err := survey.Files([]*unstructured.Unstructured{root}, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Delete(t.Context(), Options{
				Survey: s, Targets: []graph.ID{graph.IDOf("root")}, Cascade: metav1.DeletePropagationBackground, Now: time.Now(), Keys: c.keys,
				Policies: &Reading{Policies: policies.NewSet([]*policies.Policy{waiting(t)})},
			})
			if err != nil {
				t.Fatal(err)
			}
			if o := p.Objects[0]; o.Outcome != c.outcome || !strings.Contains(o.Message, c.message) {
				t.Errorf("%s: %s, %s; want %s, %s", o.Name, o.Outcome, o.Message, c.outcome, c.message)
			}
		})
	}
}

// waiting is a policy that returns Wait.
func waiting(t *testing.T) *policies.Policy {
	t.Helper()
	verdict, err := fixed.New("waits", map[hostabi.Hook][]byte{hostabi.HookPropagate: []byte(`{"decision": "Wait", "after": "1h"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return &policies.Policy{
		Name: "waits", Enforce: true, Hooks: []hostabi.Hook{hostabi.HookPropagate}, Needs: policies.NeedsReference, Evaluator: fixedEvaluator{verdict},
		Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}},
	}
}
