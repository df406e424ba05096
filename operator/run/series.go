package run

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/recorder"
)

// forgetSeries deletes the series of types, policies and finalizers that are gone.
func (op *Operator) forgetSeries() {
	types := op.types()
	existing := recorder.Existing{Kind: func(gk schema.GroupKind) bool {
		_, served := types.Preferred(gk)
		return served
	}}
	if set := op.snapshots.Policies(); set != nil {
		existing.Policies = map[string]bool{}
		for _, p := range set.All() {
			existing.Policies[p.String()] = true
		}
	}
	if op.finalizers != nil {
		existing.Finalizers = map[string]bool{}
		for name := range op.finalizers.AllProgress() {
			existing.Finalizers[name] = true
		}
	}
	op.recorder.Forget(existing)
}
