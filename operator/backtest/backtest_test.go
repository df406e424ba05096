package backtest_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/backtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// types are those that the entries have.
func types() *catalog.Catalog {
	return catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "watch"}},
	}}}, catalog.Settings{})
}

// deleted is a decision of the default, which has no transcript.
func deleted() record.Entry {
	return record.Entry{
		Time: at, Object: record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a", UID: "a", ResourceVersion: "1"},
		Action: record.Delete, Detail: "Background", Reason: "OwnersAbsent", Result: "Done", Policy: "builtin",
		Owners: []record.Owner{{Object: record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "o", UID: "o"}, Status: "Absent"}},
	}
}

// evaluated is a decision of a module, which received the object as far as withheld says.
func evaluated(decision hostabi.Decision, withheld ...string) record.Entry {
	e := deleted()
	e.Policy = "ClusterGCPolicy old"
	if decision == hostabi.DecisionOrphan {
		e.Action, e.Detail, e.Reason = record.DropReferences, "ConfigMap o", "KeptByPolicy"
	}
	absent := at.Add(-time.Hour)
	request := hostabi.Request{
		Hook: hostabi.HookCollect, Time: at, OwnersAbsentSince: &absent, Withheld: withheld, Attempt: 1, Round: 1,
		Owners: []hostabi.Owner{{Reference: hostabi.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o"}, Status: hostabi.OwnerAbsent}},
	}
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","uid":"a","resourceVersion":"1","labels":{"team":"shop"}},"data":{"keep":"yes"}}`
	if err := request.Object.UnmarshalJSON([]byte(body)); err != nil {
		panic(err)
	}
	a := record.Evaluation{Policy: e.Policy, Mode: "Enforce", Hook: "collect", Module: "ClusterPolicyModule old", Decision: string(decision), Rounds: 1}
	a.SetExchanges([]policies.Exchange{{Request: request, Verdict: hostabi.Verdict{Decision: decision}}}, false)
	e.Evaluations = []record.Evaluation{a}
	return e
}

// module is a module that sees requests, and always has the same verdict.
type module struct {
	verdict hostabi.Verdict
	seen    *hostabi.Request
}

func (module) Name() string { return "module" }

func (m module) EvaluateMetered(_ context.Context, r hostabi.Request) (policies.Evaluation, error) {
	if m.seen != nil {
		*m.seen = r
	}
	if len(r.Results) != 0 {
		return policies.Evaluation{Verdict: hostabi.Verdict{Decision: hostabi.DecisionDelete}}, nil
	}
	return policies.Evaluation{Verdict: m.verdict}, nil
}

func (m module) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	a, err := m.EvaluateMetered(ctx, r)
	return a.Verdict, err
}

// policy returns a policy with a fixed verdict.
func policy(decision hostabi.Decision, change func(*policies.Policy)) *policies.Policy {
	p := &policies.Policy{
		Name: "new", Enforce: true, Hooks: []hostabi.Hook{hostabi.HookCollect}, Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}},
		Needs: policies.NeedsReference, Evaluator: module{verdict: hostabi.Verdict{Decision: decision}},
	}
	change(p)
	return p
}

func as(*policies.Policy) {}

// withModule makes a policy one that has a module, and needs some of the object.
func withModule(needs policies.Needs) func(*policies.Policy) {
	return func(p *policies.Policy) {
		p.Module, p.Needs, p.OnFault = "ClusterPolicyModule new", needs, policies.OnFaultDefault
	}
}

func onLabels(p *policies.Policy) {
	p.ObjectSelector = labels.SelectorFromSet(labels.Set{"team": "shop"})
}

func TestEvaluate_Outcomes(t *testing.T) {
	const reference, metadata = "metadata.labels", "object"
	keep, remove := hostabi.DecisionOrphan, hostabi.DecisionDelete
	get := hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: []hostabi.Intent{{ID: "g", Get: &hostabi.GetIntent{Target: hostabi.Target{APIVersion: "v1", Kind: "Node", Name: "n"}}}}}
	for claim, c := range map[string]struct {
		entry    record.Entry
		policies []*policies.Policy
		want     backtest.Outcome
	}{
		"no policy":                          {deleted(), nil, backtest.Unchanged},
		"a policy of the same decision":      {deleted(), []*policies.Policy{policy(remove, as)}, backtest.Unchanged},
		"a policy that keeps":                {deleted(), []*policies.Policy{policy(keep, as)}, backtest.Different},
		"in Monitor mode, as if it enforced": {deleted(), []*policies.Policy{policy(keep, func(p *policies.Policy) { p.Enforce = false })}, backtest.Different},
		"another resource":                   {deleted(), []*policies.Policy{policy(keep, func(p *policies.Policy) { p.Rules[0].Resources = []string{"pods"} })}, backtest.Unchanged},
		"labels that are not recorded":       {deleted(), []*policies.Policy{policy(keep, onLabels)}, backtest.NotEvaluable},
		"labels of the namespace":            {deleted(), []*policies.Policy{policy(keep, func(p *policies.Policy) { p.NamespaceSelector = labels.SelectorFromSet(labels.Set{"a": "b"}) })}, backtest.NotEvaluable},
		"a module without a transcript":      {deleted(), []*policies.Policy{policy(keep, withModule(policies.NeedsReference))}, backtest.NotEvaluable},
		"a policy that kept is removed":      {evaluated(keep), nil, backtest.Different},
		"a module that decides the same":     {evaluated(keep), []*policies.Policy{policy(keep, withModule(policies.NeedsObject))}, backtest.Unchanged},
		"a module that decides otherwise":    {evaluated(keep), []*policies.Policy{policy(remove, withModule(policies.NeedsObject))}, backtest.Different},
		"content that was withheld":          {evaluated(keep, metadata), []*policies.Policy{policy(keep, withModule(policies.NeedsObject))}, backtest.NotEvaluable},
		"metadata that was not withheld":     {evaluated(keep, metadata), []*policies.Policy{policy(keep, withModule(policies.NeedsMetadata))}, backtest.Unchanged},
		"metadata that was withheld":         {evaluated(keep, reference, metadata), []*policies.Policy{policy(keep, withModule(policies.NeedsMetadata))}, backtest.NotEvaluable},
		"labels that are recorded":           {evaluated(keep, metadata), []*policies.Policy{policy(keep, onLabels)}, backtest.Unchanged},
		"labels that were withheld":          {evaluated(keep, reference, metadata), []*policies.Policy{policy(keep, onLabels)}, backtest.NotEvaluable},
		"a read that is not recorded":        {evaluated(keep), []*policies.Policy{policy("", func(p *policies.Policy) { withModule(policies.NeedsObject)(p); p.Evaluator = module{verdict: get} })}, backtest.NotEvaluable},
		"a matchCondition on what was withheld": {evaluated(keep, metadata), []*policies.Policy{policy(keep, func(p *policies.Policy) {
			p.Matches = func(context.Context, map[string]any) (bool, error) { return true, nil }
		})}, backtest.NotEvaluable},
		"what was hashed":                               {hashed(evaluated(keep)), []*policies.Policy{policy(keep, withModule(policies.NeedsObject))}, backtest.NotEvaluable},
		"a type that is not known":                      {ofKind(deleted(), "Widget"), []*policies.Policy{policy(keep, as)}, backtest.NotEvaluable},
		"a decision that is not about policies":         {record.Entry{Reason: "OwnerRemains", Action: record.DropReferences}, []*policies.Policy{policy(keep, as)}, ""},
		"an unknown default propagation":                {unknownDefault(), nil, backtest.NotEvaluable},
		"an earlier policy hides what is not evaluable": {deleted(), []*policies.Policy{policy(keep, func(p *policies.Policy) { p.Name, p.Priority = "first", 1 }), policy(keep, onLabels)}, backtest.Different},
	} {
		t.Run(claim, func(t *testing.T) {
			b, err := backtest.New(c.policies, types())
			if err != nil {
				t.Fatal(err)
			}
			got, err := b.Evaluate(t.Context(), c.entry)
			if err != nil {
				t.Fatal(err)
			}
			if got.Outcome != c.want || (got.Missing != "") != (c.want == backtest.NotEvaluable) {
				t.Errorf("got %q (%s), want %q: recorded %s, now %s", got.Outcome, got.Missing, c.want, got.Recorded, got.Now)
			}
		})
	}
}

func hashed(e record.Entry) record.Entry {
	e.Evaluations[0].Replayable = false
	return e
}

func ofKind(e record.Entry, kind string) record.Entry {
	e.Object.Kind = kind
	return e
}

// unknownDefault is a decision of a policy with a fixed verdict: how the default would have deleted is
// not recorded.
func unknownDefault() record.Entry {
	e := deleted()
	e.Policy = "ClusterGCPolicy fixed"
	e.Evaluations = []record.Evaluation{{Policy: e.Policy, Mode: "Enforce", Hook: "collect", Decision: "Delete"}}
	return e
}

// A module receives what was recorded, not what is known now.
func TestEvaluate_ModulesReceiveTheRecordedRequest(t *testing.T) {
	var seen hostabi.Request
	p := policy("", withModule(policies.NeedsObject))
	p.Evaluator = module{verdict: hostabi.Verdict{Decision: hostabi.DecisionDelete, Delay: hostabi.Duration(2 * time.Hour)}, seen: &seen}
	b, err := backtest.New([]*policies.Policy{p}, types())
	if err != nil {
		t.Fatal(err)
	}
	e := evaluated(hostabi.DecisionDelete)
	got, err := b.Evaluate(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	then := e.Evaluations[0].Exchanges[0].Request
	if !seen.Time.Equal(then.Time) || !seen.OwnersAbsentSince.Equal(*then.OwnersAbsentSince) || seen.Object.Metadata.Labels["team"] != "shop" {
		t.Errorf("the request is %+v", seen)
	}
	if got.Outcome != backtest.Different || got.Now.Action != "DelayedByPolicy" {
		t.Errorf("one of two hours has passed: %q, %s", got.Outcome, got.Now)
	}
}

func TestNew_PoliciesThatAreNotReadyAreErrors(t *testing.T) {
	p := policy("", func(p *policies.Policy) { p.Evaluator, p.NotReadyReason = nil, "module not fetched" })
	if _, err := backtest.New([]*policies.Policy{p}, types()); err == nil {
		t.Error("there is no error")
	}
}
