package modules

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies"
)

// readTimeout is how long Read waits for modules. What is not there by then counts as
// not fetched.
const readTimeout = 2 * time.Minute

// Reading is what one reading of all resources came to.
type Reading struct {
	Policies   *policies.Set
	Finalizers []*policies.Finalizer

	// Unfetched says of policies, by name, why their module could not be had from
	// here. Elsewhere it may be there.
	Unfetched map[string]string

	close func()
}

// Close frees the modules. Nobody may ask them any more.
func (r *Reading) Close() { r.close() }

// Read reads all resources once, writes nothing, and keeps nothing up to date. It waits
// until each module is ready or has failed, for a while.
func Read(ctx context.Context, o Options) (*Reading, error) {
	o.OnChange = func() {}
	k, err := New(o)
	if err != nil {
		return nil, err
	}
	loading, stop := context.WithCancel(context.WithoutCancel(ctx))
	end := k.load(loading)
	r := &Reading{Unfetched: map[string]string{}, close: sync.OnceFunc(func() {
		stop()
		end()
	})}
	b, err := k.settled(ctx)
	if err != nil {
		r.Close()
		return nil, err
	}
	r.Policies = b.set
	r.Finalizers, _ = k.Finalizers()
	unfetched := map[string]string{}
	for _, m := range b.modules {
		if m.problem.condition == v1alpha1.ConditionFetched || !m.loading.IsZero() {
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

// settled reads all resources, and waits until nothing is loading any more.
func (k *Keeper) settled(ctx context.Context) (*build, error) {
	waiting, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	changed := k.store.Changes().Changed()
	b, err := k.rebuild(ctx)
	// What has changed while it was built may make room for modules beyond a quota.
	for err == nil && (b.loading() || isClosed(changed)) {
		select {
		case <-changed:
		case <-waiting.Done():
			if ctx.Err() != nil {
				return nil, errors.Join(errors.New("wait for modules"), context.Cause(ctx))
			}
			return b, nil
		}
		changed = k.store.Changes().Changed()
		b = k.again(b)
	}
	return b, err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// load has modules loaded until ctx ends. The function that it returns waits for that,
// and frees what they took.
func (k *Keeper) load(ctx context.Context) (end func()) {
	var loading sync.WaitGroup
	loading.Go(func() { _ = k.store.Run(ctx) }) // it ends with ctx
	return func() {
		loading.Wait()
		k.free()
	}
}
