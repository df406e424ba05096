// Package fixed answers with verdicts that were written down: the same for every
// object, by hook. It is what a policy's fixed verdicts are carried out by.
package fixed

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// Policy answers each hook with one verdict.
type Policy struct {
	name     string
	verdicts map[hostabi.Hook]hostabi.Verdict
}

// New reads verdicts, in JSON, by the hooks that they answer: propagate and
// collect. The error is for whoever wrote them, and begins with the hook.
func New(name string, verdicts map[hostabi.Hook][]byte) (*Policy, error) {
	p := &Policy{name: name, verdicts: map[hostabi.Hook]hostabi.Verdict{}}
	for _, hook := range slices.Sorted(maps.Keys(verdicts)) {
		verdict, err := parse(hook, verdicts[hook])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", hook, err)
		}
		p.verdicts[hook] = verdict
	}
	return p, nil
}

func parse(hook hostabi.Hook, data []byte) (hostabi.Verdict, error) {
	if !answers(hook) {
		return hostabi.Verdict{}, fmt.Errorf("a fixed verdict can't answer this: write it for %s or %s",
			hostabi.HookPropagate, hostabi.HookCollect)
	}
	verdict, err := hostabi.ParseVerdict(hook, data)
	if err != nil {
		return hostabi.Verdict{}, err
	}
	if verdict.Decision == hostabi.DecisionAct {
		return hostabi.Verdict{}, fmt.Errorf("a fixed verdict can't be %s, since nobody would look at what came of it: use a module",
			hostabi.DecisionAct)
	}
	return verdict, nil
}

// answers tells whether a hook may have a fixed verdict. Work before an object
// may go, and the validation of settings, are nothing without a module.
func answers(hook hostabi.Hook) bool {
	return hook == hostabi.HookPropagate || hook == hostabi.HookCollect
}

// Name implements policies.Evaluator.
func (p *Policy) Name() string { return p.name }

// Evaluate implements policies.Evaluator. A hook without a verdict gets Abstain.
func (p *Policy) Evaluate(_ context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	if !answers(r.Hook) {
		return hostabi.Verdict{}, &policies.Fault{Policy: p.name, Message: "it has fixed verdicts, and knows no hook " + string(r.Hook)}
	}
	if verdict, ok := p.verdicts[r.Hook]; ok {
		return verdict, nil
	}
	return hostabi.Verdict{Decision: hostabi.DecisionAbstain}, nil
}
