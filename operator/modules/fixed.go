package modules

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

// fix gives the policy its fixed verdicts.
func (s *policyState) fix() {
	s.engine, s.policy.Needs = v1alpha1.EngineFixed, policies.NeedsReference // or less
	verdicts := map[hostabi.Hook][]byte{}
	for hook, v := range map[hostabi.Hook]*v1alpha1.FixedVerdict{
		hostabi.HookCollect: s.spec.Fixed.Collect, hostabi.HookPropagate: s.spec.Fixed.Propagate,
	} {
		if v == nil {
			continue
		}
		data, err := json.Marshal(v)
		if err != nil {
			s.refuse(v1alpha1.ConditionAccepted, "Invalid", "fixed: "+err.Error())
			return
		}
		verdicts[hook] = data
	}
	answers, err := fixed.New(s.policy.String(), verdicts)
	if err != nil {
		s.refuse(v1alpha1.ConditionAccepted, "Invalid", "fixed: "+err.Error())
		return
	}
	s.policy.Hooks, s.policy.Unsure = slices.Sorted(maps.Keys(verdicts)), false
	s.policy.Asker = fixedAsker{answers}
}

// fixedAsker says what an answer took in the same words as modules do.
type fixedAsker struct{ *fixed.Policy }

// Ask implements policies.Asker.
func (a fixedAsker) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	verdict, err := a.Evaluate(ctx, r)
	return policies.Answer{Verdict: verdict}, err
}
