// Package fixed evaluates fixed verdicts: one for each hook, the same for every
// object.
package fixed

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// Policy has one verdict for each hook.
type Policy struct {
	name     string
	verdicts map[hostabi.Hook]hostabi.Verdict
}

// New parses verdicts in JSON for the hooks propagate, collect, protect and retain. The error begins
// with the hook.
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
	if !supportsHook(hook) {
		return hostabi.Verdict{}, fmt.Errorf("hook cannot have a fixed verdict: write it for %s, %s, %s or %s",
			hostabi.HookPropagate, hostabi.HookCollect, hostabi.HookProtect, hostabi.HookRetain)
	}
	verdict, err := hostabi.ParseVerdict(hook, data)
	if err != nil {
		return hostabi.Verdict{}, err
	}
	if verdict.Decision == hostabi.DecisionAct {
		return hostabi.Verdict{}, fmt.Errorf("a fixed verdict cannot be %s, since nothing evaluates the results: use a module",
			hostabi.DecisionAct)
	}
	return verdict, nil
}

// supportsHook reports whether a hook can have a fixed verdict. Finalize and validate
// need a module.
func supportsHook(hook hostabi.Hook) bool {
	return slices.Contains([]hostabi.Hook{hostabi.HookPropagate, hostabi.HookCollect, hostabi.HookProtect, hostabi.HookRetain}, hook)
}

// Name implements policies.Evaluator.
func (p *Policy) Name() string { return p.name }

// Evaluate implements policies.Evaluator. A hook without a verdict abstains.
func (p *Policy) Evaluate(_ context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	if !supportsHook(r.Hook) {
		return hostabi.Verdict{}, &policies.Fault{Policy: p.name, Message: "it has fixed verdicts, and does not implement the hook " + string(r.Hook)}
	}
	if verdict, ok := p.verdicts[r.Hook]; ok {
		return verdict, nil
	}
	return hostabi.Verdict{Decision: hostabi.DecisionAbstain}, nil
}
