package run

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gleaner-dev/gleaner/operator/fairqueue"
)

// work reconciles what is queued.
type work struct{ *Operator }

// controller returns a controller that reconciles what a feed queues.
func (w work) controller(name string, from *feed, workers int, do reconcile.TypedFunc[fairqueue.Item]) (controller.TypedController[fairqueue.Item], error) {
	c, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[fairqueue.Item]{
		Reconciler:              do,
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[fairqueue.Item](minBackoff, maxBackoff),
		NewQueue:                fairqueue.New(workers),
		NeedLeaderElection:      ptr.To(false),
		CacheSyncTimeout:        w.options.SyncTimeout + time.Minute, // the feed's wait ends sooner, without an error
		SkipNameValidation:      ptr.To(true),                        // tests run several in one process
		Logger:                  w.log,
	})
	if err != nil {
		return nil, fmt.Errorf("create controller: %w", err)
	}
	if err := c.Watch(from); err != nil {
		return nil, fmt.Errorf("watch the graph: %w", err)
	}
	return c, nil
}

// waitForSync waits for all lists and for the policies, at most for SyncTimeout (G-11): a
// type that can't be read only delays the decisions that need it (defect 3.7). Without
// policies, every object would be held, and a record be made of each.
func (w work) waitForSync(ctx context.Context) {
	defer debug.FreeOSMemory() // listing needs many times the memory of what is kept
	ctx, cancel := context.WithTimeout(ctx, w.options.SyncTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !w.watcher.Synced() || w.snapshots.Policies() == nil {
		select {
		case <-ctx.Done():
			w.log.Info("Starting before everything is listed", "missing", w.watcher.Unsynced(), "policiesRead", w.snapshots.Policies() != nil)
			return
		case <-tick.C:
		}
	}
}

// regular reconciles an object that is not crowded.
func (w work) regular(ctx context.Context, i fairqueue.Item) (reconcile.Result, error) {
	if w.queues.divert(i) {
		return reconcile.Result{}, nil
	}
	return w.collector.Reconcile(ctx, i.ID)
}

// crowded reconciles an object with many owners.
func (w work) crowded(ctx context.Context, i fairqueue.Item) (reconcile.Result, error) {
	return w.collector.ReconcileCrowded(ctx, i.ID)
}
