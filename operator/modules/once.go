package modules

import (
	"context"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies"
)

// Reading is what one reading of all resources came to.
type Reading struct {
	Policies   *policies.Set
	Finalizers []*policies.Finalizer

	// Unfetched says of policies, by name, why their module could not be had from
	// here. Elsewhere it may be there.
	Unfetched map[string]string

	engines *engines
}

// Close frees the modules. Nobody may ask them any more.
func (r *Reading) Close() { r.engines.close() }

// Read reads all resources once, writes nothing, and keeps nothing up to date.
func Read(ctx context.Context, o Options) (*Reading, error) {
	o.OnChange = func() {}
	k, err := New(o)
	if err != nil {
		return nil, err
	}
	defer k.fetcher.Close()
	b, err := k.rebuild(ctx)
	if err != nil {
		k.engines.close()
		return nil, err
	}
	r := &Reading{Policies: b.set, Unfetched: map[string]string{}, engines: k.engines}
	r.Finalizers, _ = k.Finalizers()
	unfetched := map[string]string{}
	for _, m := range b.modules {
		if m.problem.condition == v1alpha1.ConditionFetched {
			unfetched[m.name()] = m.problem.message
		}
	}
	for _, p := range b.policies {
		if why, is := unfetched[p.policy.Module]; is {
			r.Unfetched[p.policy.String()] = p.policy.Module + ": " + why
		}
	}
	return r, nil
}
