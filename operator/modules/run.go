package modules

import (
	"context"
	"time"
)

const (
	// settle is how long the keeper waits for more of the same change: kubectl apply
	// of a folder is many.
	settle = 100 * time.Millisecond

	// firstRetry and longestRetry bound the wait after a failure to read something.
	firstRetry   = time.Second
	longestRetry = time.Minute

	// resync is how often all resources are read again although nothing is known to have
	// changed.
	resync = 5 * time.Minute

	// longestSettle bounds the wait for more modules to become ready where building the
	// set takes long.
	longestSettle = time.Second

	// movedPause is how long the status of finalizers lags behind at most: a thousand
	// objects can get on within a second.
	movedPause = time.Second

	// statusInterval is how often the counts of decisions are written, if they have
	// changed.
	statusInterval = 10 * time.Second
)

// Run keeps the set until ctx ends, and frees it then.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.load(ctx)()
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	r := runner{Keeper: k, read: time.NewTimer(0), settled: time.NewTimer(resync), wait: firstRetry}
	defer r.read.Stop()
	defer r.settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if r.last != nil {
				k.report(ctx, r.last)
			}
		case <-k.moved:
			if r.last != nil {
				k.reportFinalizers(ctx, r.last)
			}
			pause(ctx, movedPause)
		case <-r.changed:
			pause(ctx, min(max(settle, 4*r.last.took), longestSettle))
			r.again(ctx)
		case <-r.settled.C:
			r.again(ctx)
		case <-r.read.C:
			r.rebuild(ctx)
		case <-k.pokes:
			pause(ctx, settle)
			r.rebuild(ctx)
		}
	}
}

// runner is what Run remembers from one step to the next.
type runner struct {
	*Keeper
	last    *build
	changed <-chan struct{} // a module or its use has changed since last; nil until there is one
	read    *time.Timer     // for the next reading
	settled *time.Timer     // for the status of what is still loading
	wait    time.Duration   // after the next failure to read
}

// rebuild reads the resources. Until that succeeds, all stays as it is.
func (r *runner) rebuild(ctx context.Context) {
	changed := r.store.Changes().Changed()
	b, err := r.Keeper.rebuild(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.options.Log.Error(err, "Could not read the policies, leaving them as they were", "known", r.set.Load() != nil)
		r.read.Reset(r.wait)
		r.wait = min(2*r.wait, longestRetry)
		return
	}
	r.wait = firstRetry
	r.read.Reset(resync)
	r.show(ctx, b, changed)
}

// again takes the modules as they are now.
func (r *runner) again(ctx context.Context) {
	if r.last == nil || ctx.Err() != nil {
		return
	}
	changed := r.store.Changes().Changed()
	r.show(ctx, r.Keeper.again(r.last), changed)
}

// show writes the status of a build, which is in force.
func (r *runner) show(ctx context.Context, b *build, changed <-chan struct{}) {
	r.last, r.changed = b, changed
	r.report(ctx, b)
	if b.loadingFor(brief) {
		r.settled.Reset(loadingGrace)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
