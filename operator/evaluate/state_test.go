package evaluate_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// objectReader is an API server that has one object.
type objectReader struct{ *unstructured.Unstructured }

func (s objectReader) Get(context.Context, policies.ServiceAccount, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return s.Unstructured, nil
}

func (objectReader) Namespace(context.Context, string) (modulecall.Namespace, error) {
	return modulecall.Namespace{}, nil
}

// The state may contain a decision to keep the object. While it cannot be verified, nothing
// is decided.
func TestState_UnverifiableStateKeepsTheObject(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	facts := ownerless()
	facts.Object.HasState = true
	keys, err := statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})
	if err != nil {
		t.Fatal(err)
	}
	m := objectstate.New(facts.Object.UID, facts.Object.Owners, now)
	signed, err := m.Sign(keys)
	if err != nil {
		t.Fatal(err)
	}
	away := errors.New("the Secret can't be read")
	for claim, c := range map[string]struct {
		annotation               string
		keys                     statekey.Keys
		err                      error
		held, remembered, tossed bool
	}{
		"signed, with the keys":       {annotation: signed, keys: keys, remembered: true},
		"signed, without the keys":    {annotation: signed, err: away, held: true},
		"signed, while keys may lack": {annotation: signed, keys: keys, err: away, remembered: true},
		"not signed":                  {annotation: m.String(), keys: keys, tossed: true},
		"not signed, without keys":    {annotation: m.String(), err: away, tossed: true},
		"signed with a former key":    {annotation: signed, tossed: true},
	} {
		t.Run(claim, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID(facts.Object.UID)
			o.SetResourceVersion(facts.Object.ResourceVersion)
			o.SetOwnerReferences(facts.Object.Owners)
			o.SetCreationTimestamp(metav1.NewTime(now.Add(-time.Hour)))
			o.SetAnnotations(map[string]string{objectstate.Annotation: c.annotation})
			calls := 0
			evaluator := &evaluate.Evaluator{
				Policies: keepPolicy(func(p *policies.Policy) { p.Needs = policies.NeedsReference }), Default: builtin.Policy{}, Catalog: widgets,
				Reader: objectReader{o}, Now: func() time.Time { return now },
				StateKeys: func() (statekey.Keys, error) { return c.keys, c.err }, OnUnverified: func(error) { calls++ },
			}
			got, err := evaluator.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookCollect, Facts: facts})
			if err != nil {
				t.Fatal(err)
			}
			if held := errors.Is(got.Fault, away); held != c.held || held != (got.Verdict.Decision == "") || held != (calls == 1) {
				t.Errorf("held %t, fault %v, verdict %+v, %d calls of Unverified", held, got.Fault, got.Verdict, calls)
			}
			if got.Stored != c.remembered || got.Obsolete != c.tossed {
				t.Errorf("remembered %t, stray %t", got.Stored, got.Obsolete)
			}
		})
	}
}

// A grace period that is not known yet may be longer, so nothing is decided.
func TestInheritGracePeriod(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	keys, err := statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})
	if err != nil {
		t.Fatal(err)
	}
	facts := ownerless()
	facts.Object.Terminating, facts.Object.Held = true, true
	signed, err := objectstate.SignGracePeriod(&metav1.ObjectMeta{UID: facts.Object.UID}, 90, keys)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := objectstate.SignGracePeriod(&metav1.ObjectMeta{UID: "another"}, 90, keys)
	if err != nil {
		t.Fatal(err)
	}
	away := errors.New("the Secret can't be read")
	for claim, c := range map[string]struct {
		annotation string
		keys       statekey.Keys
		err        error
		want       int64
		fault      error
	}{
		"the request has one":             {annotation: signed, keys: keys, want: 90},
		"the request has none":            {keys: keys, want: 600},
		"users have written one":          {annotation: `{"seconds":0}`, keys: keys, want: 600},
		"it was copied":                   {annotation: copied, keys: keys, want: 600},
		"it can't be verified":            {annotation: signed, err: away, fault: away},
		"users wrote one, without keys":   {annotation: `{"seconds":0}`, err: away, want: 600},
		"it was signed with a former key": {annotation: signed, want: 600},
	} {
		t.Run(claim, func(t *testing.T) {
			o := &unstructured.Unstructured{Object: map[string]any{}}
			o.SetUID(facts.Object.UID)
			o.SetResourceVersion(facts.Object.ResourceVersion)
			o.SetOwnerReferences(facts.Object.Owners)
			o.SetFinalizers([]string{graph.Hold})
			o.SetDeletionTimestamp(&metav1.Time{Time: now})
			if c.annotation != "" {
				o.SetAnnotations(map[string]string{objectstate.GracePeriodAnnotation: c.annotation})
			}
			evaluator := &evaluate.Evaluator{
				Policies: keepPolicy(func(p *policies.Policy) {
					p.Needs, p.Hooks = policies.NeedsReference, []hostabi.Hook{hostabi.HookPropagate}
					p.Evaluator = fixedEvaluator{policies.Evaluation{Verdict: hostabi.Verdict{Decision: hostabi.DecisionForeground, GracePeriodSeconds: ptr.To[int64](600), InheritGracePeriod: true}}, nil}
				}),
				Default: builtin.Policy{}, Catalog: widgets, Reader: objectReader{o}, Now: func() time.Time { return now },
				StateKeys: func() (statekey.Keys, error) { return c.keys, c.err },
			}
			got, err := evaluator.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookPropagate, Facts: facts, RequestedPropagation: hostabi.RequestedUnspecified})
			if err != nil {
				t.Fatal(err)
			}
			if !errors.Is(got.Fault, c.fault) || c.fault == nil && (got.Fault != nil || *got.Verdict.GracePeriodSeconds != c.want) {
				t.Errorf("fault %v, verdict %+v; changed %+v", got.Fault, got.Verdict, got.Changed)
			}
		})
	}
}
