package modules

import (
	"context"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies"
)

// begin puts the policies into force for the first time before there is any module:
// fifty of them may take a minute to fetch and compile, and nothing would be
// collected until then. A policy that is not ready for that has what it selects kept,
// also with onFault: Default, which is for modules that fail and not for a start.
func (k *Keeper) begin(ctx context.Context, b *build, behind map[string]struct{}) {
	if k.set.Load() != nil || len(b.modules) == 0 {
		return
	}
	modules := map[string]*moduleState{}
	for _, m := range b.modules {
		modules[m.name()] = &moduleState{kind: m.kind, key: m.key, problem: problem{
			condition: v1alpha1.ConditionCompiled, reason: "NotCompiled", message: "it is being fetched and compiled",
		}}
	}
	all := make([]*policies.Policy, 0, len(b.policies))
	for _, p := range b.policies {
		early := newPolicyState(p.object, p.kind, p.spec, p.status)
		k.make(ctx, early, modules, nil)
		if early.problem.is() {
			early.policy.OnFault = policies.OnFaultHold
		}
		all = append(all, early.policy)
	}
	k.set.Store(policies.NewSet(all))
	k.caughtUp(b, behind)
	k.options.OnChange()
}
