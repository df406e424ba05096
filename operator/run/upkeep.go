package run

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/recorder"
)

// upkeep does what is due from time to time.
type upkeep struct{ *Operator }

// run deletes outdated metrics and reports equivalent kinds from time to time.
func (u upkeep) run(ctx context.Context) error {
	tick := time.NewTicker(u.options.SweepInterval)
	defer tick.Stop()
	reported := map[graph.EquivalentKinds]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		u.forgetSeries()
		u.archiving.forget(u.snapshots.Current())
		u.reportEquivalents(reported)
	}
}

// reportEquivalents logs each pair of types that show the same objects once.
func (u upkeep) reportEquivalents(reported map[graph.EquivalentKinds]bool) {
	for _, pair := range u.store.EquivalentKinds() {
		if !reported[pair] {
			reported[pair] = true
			u.log.Info("Two types show the same objects, of which the first counts", "first", pair.First.String(), "second", pair.Second.String(),
				"fix", "name the resource of one of them in --ignore-resources")
		}
	}
}

// forgetSeries deletes the series of types, policies and finalizers that are gone.
func (u upkeep) forgetSeries() {
	types := u.types()
	existing := recorder.Existing{Kind: func(gk schema.GroupKind) bool {
		_, served := types.Preferred(gk)
		return served
	}}
	if set := u.snapshots.Policies(); set != nil {
		existing.Policies = map[string]bool{}
		for _, p := range set.All() {
			existing.Policies[p.String()] = true
		}
	}
	if u.finalizers != nil {
		existing.Finalizers = map[string]bool{}
		for name := range u.finalizers.AllProgress() {
			existing.Finalizers[name] = true
		}
	}
	u.recorder.Forget(existing)
}
