package evaluate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// ownerless is an object whose owner is gone.
func ownerless() decide.Facts {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}
	return decide.Facts{
		Object: graph.Object{
			UID: "uid", ResourceVersion: "1", Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
			Namespace: "shop", Name: "w", Owners: []metav1.OwnerReference{owner},
		},
		Owners: []decide.Owner{{Reference: owner, Status: decide.Absent}},
	}
}

// keepPolicy returns a policy that keeps widgets.
func keepPolicy(change func(*policies.Policy)) func() *policies.Set {
	p := &policies.Policy{
		Name: "keep", Enforce: true, Hooks: []hostabi.Hook{hostabi.HookCollect}, OnFault: policies.OnFaultDefault,
		Rules:     []policies.Rule{{Groups: []string{"example.com"}, Resources: []string{"widgets"}}},
		Evaluator: fixedEvaluator{policies.Evaluation{Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan}}, nil},
	}
	change(p)
	return func() *policies.Set { return policies.NewSet([]*policies.Policy{p}) }
}

// fixedEvaluator is a module with a fixed verdict.
type fixedEvaluator struct {
	answer policies.Evaluation
	err    error
}

func (fixedEvaluator) Name() string { return "answering" }

func (a fixedEvaluator) EvaluateMetered(context.Context, hostabi.Request) (policies.Evaluation, error) {
	return a.answer, a.err
}

func (a fixedEvaluator) Evaluate(context.Context, hostabi.Request) (hostabi.Verdict, error) {
	return a.answer.Verdict, a.err
}

// widgets are served.
func widgets() *catalog.Catalog {
	return catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
		{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "watch"}},
	}}}, catalog.Settings{})
}

// failingReader is an unavailable API server.
type failingReader struct{}

var errUnavailable = errors.New("no answer")

func (failingReader) Get(context.Context, policies.ServiceAccount, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return nil, errUnavailable
}

func (failingReader) Namespace(context.Context, string) (modulecall.Namespace, error) {
	return modulecall.Namespace{}, errUnavailable
}

// onFault: Default applies to faults of modules. Failed reads are retried.
func TestEvaluate_FailedReadKeepsTheObject(t *testing.T) {
	unread := func(*policies.Policy) {}
	for claim, c := range map[string]struct {
		change func(*policies.Policy)
		passed bool
	}{
		"the object":         {change: unread},
		"selected by labels": {change: func(p *policies.Policy) { p.ObjectSelector = labels.SelectorFromSet(labels.Set{"a": "b"}) }},
		"the namespace":      {change: func(p *policies.Policy) { p.NamespaceSelector = labels.SelectorFromSet(labels.Set{"a": "b"}) }},
		"a call that was cut off": {change: func(p *policies.Policy) {
			p.Needs, p.Evaluator = policies.NeedsReference, fixedEvaluator{err: context.DeadlineExceeded}
		}},
		"but a module that fails is passed over": {passed: true, change: func(p *policies.Policy) {
			p.Needs, p.Evaluator = policies.NeedsReference, fixedEvaluator{err: &policies.Fault{Kind: policies.FaultTrapped}}
		}},
		"missing namespace": {passed: true, change: func(p *policies.Policy) {
			p.Needs, p.Evaluator = policies.NeedsReference, nil
		}},
	} {
		t.Run(claim, func(t *testing.T) {
			evaluator := &evaluate.Evaluator{
				Policies: keepPolicy(c.change), Default: builtin.Policy{}, Catalog: widgets, Reader: failingReader{}, Now: time.Now,
			}
			result, err := evaluator.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookCollect, Facts: ownerless()})
			if err != nil {
				t.Fatal(err)
			}
			if deleted := result.Verdict.Decision == hostabi.DecisionDelete; deleted != c.passed || deleted == (result.Fault != nil) {
				t.Errorf("it is deleted: %t, want %t; fault: %v", deleted, c.passed, result.Fault)
			}
		})
	}
}

// A discovery response may lack a type. The default does not consider policies, and would
// delete the object.
func TestEvaluate_UnservedTypeIsKept(t *testing.T) {
	c := &evaluate.Evaluator{
		Policies: keepPolicy(func(*policies.Policy) {}), Default: builtin.Policy{}, Catalog: func() *catalog.Catalog { return nil }, Now: time.Now,
	}
	result, err := c.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookCollect, Facts: ownerless()})
	if err != nil || result.Fault == nil || result.Verdict.Decision != "" {
		t.Errorf("got %+v, %v; want a fault, and no verdict", result, err)
	}
}

// hangingEvaluator is a module that never returns, so a call lasts until the caller's context ends.
type hangingEvaluator struct{ fixedEvaluator }

func (hangingEvaluator) EvaluateMetered(ctx context.Context, _ hostabi.Request) (policies.Evaluation, error) {
	<-ctx.Done()
	return policies.Evaluation{}, ctx.Err()
}

// The verdict of a policy in Monitor mode has no effect, so it must not use up the time
// in which the object is deleted.
func TestEvaluate_MonitorPolicyLeavesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evaluator := &evaluate.Evaluator{
			Policies: keepPolicy(func(p *policies.Policy) {
				p.Enforce, p.Needs, p.Evaluator = false, policies.NeedsReference, hangingEvaluator{}
			}),
			Default: builtin.Policy{}, Catalog: widgets, Reader: failingReader{}, Now: time.Now,
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		result, err := evaluator.Evaluate(ctx, evaluate.Input{Hook: hostabi.HookCollect, Facts: ownerless()})
		if err != nil || result.Verdict.Decision != hostabi.DecisionDelete {
			t.Errorf("verdict %+v, error %v", result.Verdict, err)
		}
		if ctx.Err() != nil {
			t.Errorf("no time is left: %v", ctx.Err())
		}
		if len(result.Evaluations) != 1 || result.Evaluations[0].Fault == nil {
			t.Errorf("evaluations: %+v; want one fault", result.Evaluations)
		}
	})
}

// A digest pins the content of a module, not its limits: anyone who may edit the module can
// make it run out of fuel. Unless the policy has onFault: Default, that keeps the object.
func TestEvaluate_TooLittleFuelKeepsTheObject(t *testing.T) {
	for onFault, deleted := range map[policies.OnFault]bool{"": false, policies.OnFaultHold: false, policies.OnFaultDefault: true} {
		evaluator := &evaluate.Evaluator{
			Policies: keepPolicy(func(p *policies.Policy) {
				p.Needs, p.OnFault = policies.NeedsReference, onFault
				p.Evaluator = fixedEvaluator{err: &policies.Fault{Kind: policies.FaultFuelExhausted}}
			}),
			Default: builtin.Policy{}, Catalog: widgets, Reader: failingReader{}, Now: time.Now,
		}
		result, err := evaluator.Evaluate(t.Context(), evaluate.Input{Hook: hostabi.HookCollect, Facts: ownerless()})
		if err != nil || (result.Verdict.Decision == hostabi.DecisionDelete) != deleted || (result.Fault == nil) != deleted {
			t.Errorf("onFault %q: verdict %+v, fault %v, error %v", onFault, result.Verdict, result.Fault, err)
		}
	}
}
