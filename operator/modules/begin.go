package modules

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies"
)

// begin puts policies into force that are new, or have changed, before modules are
// fetched and compiled: fifty of them may take a minute, and one server that does not
// answer takes as long. What needs no module need not wait for somebody else's. A policy
// that is not ready for that has what it selects kept, also with onFault: Default, which
// is for modules that fail and not for a start. The others stay as they are until then.
func (k *Keeper) begin(ctx context.Context, b *build, behind map[string]struct{}) {
	if len(b.modules) == 0 {
		return
	}
	before, modules := map[types.UID]*policyState{}, k.early(b)
	if k.last != nil {
		for _, p := range k.last.policies {
			before[p.object.GetUID()] = p
		}
	}
	all, differs := make([]*policies.Policy, 0, len(b.policies)), k.set.Load() == nil
	for _, p := range b.policies {
		if was, ok := before[p.object.GetUID()]; ok && same(was.object, p.object) {
			all = append(all, was.policy)
			continue
		}
		early := newPolicyState(p.object, p.kind, p.spec, p.status)
		k.make(ctx, early, modules, map[string]struct{}{})
		if early.problem.is() {
			early.policy.OnFault = policies.OnFaultHold
		}
		all, differs = append(all, early.policy), true
	}
	if differs {
		k.set.Store(policies.NewSet(all))
		if k.last == nil || sameModules(k.last.modules, b.modules) {
			k.caughtUp(b, behind)
		}
		k.options.OnChange()
	}
}

// sameModules reports whether what is in force goes by no module that has changed since:
// the policies that stay as they are do so until it is compiled.
func sameModules(before, now []*moduleState) bool {
	there := map[types.UID]*moduleState{}
	for _, m := range before {
		there[m.object.GetUID()] = m
	}
	changed := slices.ContainsFunc(now, func(m *moduleState) bool {
		was, ok := there[m.object.GetUID()]
		return !ok || !same(was.object, m.object)
	})
	return !changed && len(before) == len(now)
}

// early are the modules as far as they were there when all were looked at last.
func (k *Keeper) early(b *build) map[string]*moduleState {
	before := map[types.UID]*moduleState{}
	if k.last != nil {
		for _, m := range k.last.modules {
			before[m.object.GetUID()] = m
		}
	}
	modules := map[string]*moduleState{}
	for _, m := range b.modules {
		if was, ok := before[m.object.GetUID()]; ok && was.compiled != nil && same(was.object, m.object) {
			modules[m.name()] = was
			continue
		}
		modules[m.name()] = &moduleState{kind: m.kind, key: m.key, problem: problem{
			condition: v1alpha1.ConditionCompiled, reason: "NotCompiled", message: "it is being fetched and compiled",
		}}
	}
	return modules
}

// same reports whether two readings of a resource say the same.
func same(a, b client.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration()
}
