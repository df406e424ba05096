package evaluate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/selection"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// namespacesOnly is an API server that has no answer about objects.
type namespacesOnly struct{ failingReader }

func (namespacesOnly) Namespace(context.Context, string) (modulecall.Namespace, error) {
	return modulecall.Namespace{}, nil
}

// selectorEvaluator returns an Evaluator that can't read objects, for a policy that keeps widgets
// with a label, and the object as a watch shows it with some labels.
func selectorEvaluator(t *testing.T, set labels.Set, change func(*policies.Policy)) (*evaluate.Evaluator, decide.Facts) {
	t.Helper()
	all := keepPolicy(func(p *policies.Policy) {
		p.Needs, p.ObjectSelector = policies.NeedsReference, labels.SelectorFromSet(labels.Set{"keep": "true"})
		p.Hooks = hostabi.Hooks()
		change(p)
	})()
	index, facts := selectors.New(all), ownerless()
	facts.Object.Selection = index.Scope(schema.GroupResource{Group: "example.com", Resource: "widgets"}, "shop").Evaluate(set)
	return &evaluate.Evaluator{
		Policies: func() *policies.Set { return all }, Selectors: func() *selectors.Index { return index },
		Default: builtin.Policy{}, Catalog: widgets, Reader: namespacesOnly{}, Now: time.Now,
	}, facts
}

// The resourceVersion is a precondition of what is written then, so the labels are those of the
// object that is deleted.
func TestEvaluate_LabelsThatTheWatchShowed_AreNotReadAgain(t *testing.T) {
	conditions := func(p *policies.Policy) {
		p.Matches = func(context.Context, map[string]any) (bool, error) { return true, nil }
	}
	for name, c := range map[string]struct {
		labels labels.Set
		change func(*policies.Policy)
		forget bool
		want   hostabi.Decision // "": it is kept, since it can't be read
	}{
		"not selected":                  {labels: labels.Set{"keep": "false"}, want: hostabi.DecisionDelete},
		"not selected, with conditions": {change: conditions, want: hostabi.DecisionDelete},
		"selected":                      {labels: labels.Set{"keep": "true"}, want: hostabi.DecisionOrphan},
		"selected, with conditions":     {labels: labels.Set{"keep": "true"}, change: conditions},
		"not known":                     {labels: labels.Set{"keep": "false"}, forget: true},
	} {
		t.Run(name, func(t *testing.T) {
			change := c.change
			if change == nil {
				change = func(*policies.Policy) {}
			}
			evaluator, facts := selectorEvaluator(t, c.labels, change)
			if c.forget {
				facts.Object.Selection = selection.Selection{}
			}
			result, err := evaluator.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookCollect, Facts: facts})
			if err != nil {
				t.Fatal(err)
			}
			if result.Verdict.Decision != c.want || (result.Fault != nil) != (c.want == "") {
				t.Errorf("got %q, fault %v, want %q", result.Verdict.Decision, result.Fault, c.want)
			}
		})
	}
}

// What is decided about dependents is written to them, and no precondition tells whether the watch
// is behind for their owner.
func TestEvaluate_LabelsOfOwners_AreReadLive(t *testing.T) {
	evaluator, facts := selectorEvaluator(t, nil, func(*policies.Policy) {})
	result, err := evaluator.Evaluate(t.Context(), evaluate.Input{
		Hook: hostabi.HookPropagate, Facts: facts, RequestedPropagation: hostabi.RequestedUnspecified,
	})
	if err != nil || !errors.Is(result.Fault, errUnavailable) {
		t.Errorf("got %q, fault %v, %v, want a fault, since the owner can't be read", result.Verdict.Decision, result.Fault, err)
	}
	governs, err := evaluator.Governs(t.Context(), evaluate.Input{Hook: hostabi.HookCollect, Facts: facts})
	if !errors.Is(err, errUnavailable) {
		t.Errorf("a review: got %v, %v, want an error: it is about another state of the object", governs, err)
	}
}

// An object without the label needs no hold, and no read tells that.
func TestNeedsHold_OfLabelsThatTheWatchShowed_ReadsNothing(t *testing.T) {
	for _, c := range []struct {
		labels labels.Set
		want   bool
	}{{nil, false}, {labels.Set{"keep": "true"}, true}} {
		evaluator, facts := selectorEvaluator(t, c.labels, func(*policies.Policy) {})
		if wanted, known, err := evaluator.NeedsHold(t.Context(), facts); err != nil || !known || wanted != c.want {
			t.Errorf("%v: got %t, known %t, %v, want %t", c.labels, wanted, known, err, c.want)
		}
	}
}
