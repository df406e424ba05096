package evaluate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// withoutQuorum is an API server that can't read objects.
type withoutQuorum struct {
	objectReader
	err error
}

func (r withoutQuorum) Get(context.Context, policies.ServiceAccount, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return nil, r.err
}

func TestInheritGracePeriod_DecidesNothingIfTheReadFails(t *testing.T) {
	facts := ownerless()
	facts.Object.Terminating, facts.Object.Held = true, true
	evaluator := &evaluate.Evaluator{
		Policies: keepPolicy(func(p *policies.Policy) {
			p.Needs, p.Hooks, p.OnFault = policies.NeedsReference, []hostabi.Hook{hostabi.HookPropagate}, policies.OnFaultHold
			p.Evaluator = fixedEvaluator{policies.Evaluation{Verdict: hostabi.Verdict{Decision: hostabi.DecisionForeground, InheritGracePeriod: true}}, nil}
		}),
		Default: builtin.Policy{}, Catalog: widgets, Reader: withoutQuorum{err: errors.New("no quorum")}, Now: time.Now,
		StateKeys: func() (statekey.Keys, error) { return statekey.Keys{}, nil },
	}
	got, err := evaluator.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookPropagate, Facts: facts, RequestedPropagation: hostabi.RequestedUnspecified})
	if err == nil && got.Fault == nil {
		t.Errorf("decided %+v", got.Verdict)
	}
}
