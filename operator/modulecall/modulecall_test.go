package modulecall_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/policies"
)

// module evaluates requests by a function. Each costs one unit of fuel.
type module func(hostabi.Request) (hostabi.Verdict, error)

func (module) Name() string { return "module" }

func (m module) Evaluate(_ context.Context, r hostabi.Request) (hostabi.Verdict, error) { return m(r) }

func (m module) EvaluateMetered(_ context.Context, r hostabi.Request) (policies.Evaluation, error) {
	verdict, err := m(r)
	return policies.Evaluation{Verdict: verdict, Fuel: 1}, err
}

func act(ids ...string) hostabi.Verdict {
	v := hostabi.Verdict{Decision: hostabi.DecisionAct}
	for _, id := range ids {
		v.Intents = append(v.Intents, hostabi.Intent{ID: id})
	}
	return v
}

func TestCall_CarriesResultsFromRoundToRound(t *testing.T) {
	answers := []hostabi.Verdict{act("a", "b"), act("c"), {Decision: hostabi.DecisionDone}}
	c := modulecall.Call{Evaluator: module(func(r hostabi.Request) (hostabi.Verdict, error) { return answers[r.Round-1], nil })}
	for c.Next(t.Context()) {
		c.CarryOut(func(hostabi.Intent) (hostabi.Result, bool) { return hostabi.Result{}, false })
	}
	var known [][]string
	for _, e := range c.Exchanges {
		known = append(known, []string{})
		for _, id := range []string{"a", "b", "c"} {
			if _, ok := e.Request.Results[id]; ok {
				known[len(known)-1] = append(known[len(known)-1], id)
			}
		}
	}
	if diff := cmp.Diff([][]string{{}, {"a", "b"}, {"a", "b", "c"}}, known); diff != "" {
		t.Errorf("results by round: %s", diff)
	}
	if c.Fault != nil || c.Verdict.Decision != hostabi.DecisionDone || c.Rounds != 3 || c.Fuel != 3 {
		t.Errorf("it ended with %+v", c)
	}
}

func TestCall_StopsIntentsWhenInterrupted(t *testing.T) {
	c := modulecall.Call{Evaluator: module(func(hostabi.Request) (hostabi.Verdict, error) { return act("a", "b"), nil })}
	done := 0
	if c.Next(t.Context()) {
		c.CarryOut(func(hostabi.Intent) (hostabi.Result, bool) {
			done++
			return hostabi.Result{}, done == 2
		})
	}
	if done != 2 || len(c.Request.Results) != 1 {
		t.Errorf("%d intents were tried, and there are %d results", done, len(c.Request.Results))
	}
}

func TestCall_EndsWithFault(t *testing.T) {
	broken := errors.New("broken")
	c := modulecall.Call{Evaluator: module(func(hostabi.Request) (hostabi.Verdict, error) { return act("a"), broken })}
	if c.Next(t.Context()) || !errors.Is(c.Fault, broken) || len(c.Exchanges) != 1 {
		t.Errorf("got %+v", c)
	}
}

func TestCall_EndsAfterMaxRounds(t *testing.T) {
	for hook, advice := range map[hostabi.Hook]string{hostabi.HookFinalize: "return Wait in between", hostabi.HookCollect: "other than Act"} {
		asked := 0
		c := modulecall.Call{
			Request: hostabi.Request{Hook: hook},
			Evaluator: module(func(hostabi.Request) (hostabi.Verdict, error) {
				asked++
				return act("a"), nil
			}),
		}
		for c.Next(t.Context()) {
			c.CarryOut(func(hostabi.Intent) (hostabi.Result, bool) { return hostabi.Result{}, false })
		}
		if asked != modulecall.MaxRounds || c.Fault == nil || !strings.HasSuffix(c.Fault.Error(), advice) || c.Verdict.Decision != "" {
			t.Errorf("%s: after %d rounds: %v, %v", hook, asked, c.Verdict, c.Fault)
		}
	}
}
