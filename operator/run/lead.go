package run

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/fairqueue"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// AddTo adds the Operator to a manager. Every replica watches and keeps the graph, so that
// a new leader has it already; only the leader works. The manager's leader election is not
// used: see elect.
func (op *Operator) AddTo(mgr manager.Manager) error {
	regular, err := op.controller("gleaner", &feed{queues: op.queues, sync: op.waitForSync}, op.options.Workers, op.reconcileRegular)
	if err != nil {
		return err
	}
	crowded, err := op.controller("gleaner-many-owners", &feed{queues: op.queues, sync: op.waitForSync, crowded: true}, 1, op.reconcileCrowded)
	if err != nil {
		return err
	}
	if err := addAll(mgr,
		op.watcher.Run, op.keys.Run, op.modules.Run, op.snapshots.Run, op.finalizers.Run, op.sendEvents, op.maintain, op.confirm,
		func(ctx context.Context) error { return op.collector.RunSweeps(ctx, op.options.SweepInterval) }, op.elect, regular.Start, crowded.Start,
	); err != nil {
		return err
	}
	if err := addAll(mgr, op.subscribers...); err != nil {
		return err
	}
	if err := op.options.Metrics.Register(metrics{op}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return mgr.AddReadyzCheck("synced", op.ready())
}

// controller returns a controller that reconciles what a feed queues.
func (op *Operator) controller(name string, from *feed, workers int, do reconcile.TypedFunc[fairqueue.Item]) (controller.TypedController[fairqueue.Item], error) {
	c, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[fairqueue.Item]{
		Reconciler:              do,
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[fairqueue.Item](minBackoff, maxBackoff),
		NewQueue:                fairqueue.New(workers),
		NeedLeaderElection:      ptr.To(false),
		CacheSyncTimeout:        op.options.SyncTimeout + time.Minute, // the feed's wait ends sooner, without an error
		SkipNameValidation:      ptr.To(true),                         // tests run several in one process
		Logger:                  op.log,
	})
	if err != nil {
		return nil, fmt.Errorf("create controller: %w", err)
	}
	if err := c.Watch(from); err != nil {
		return nil, fmt.Errorf("watch the graph: %w", err)
	}
	return c, nil
}

// everywhere is a runnable that every replica runs, leading or not.
type everywhere struct{ manager.RunnableFunc }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// ready returns the check of whether a replica could take over.
func (op *Operator) ready() func(*http.Request) error {
	return func(*http.Request) error {
		if op.listed() {
			return nil
		}
		return fmt.Errorf("%d resources are not listed yet", len(op.watcher.Unsynced()))
	}
}

// listed reports whether the graph is complete: everything was listed, or SyncTimeout has
// passed.
func (op *Operator) listed() bool {
	return op.watcher.Synced() || op.now().Sub(op.began) >= op.options.SyncTimeout
}

// maintain deletes outdated metrics and reports equivalent kinds from time to time.
func (op *Operator) maintain(ctx context.Context) error {
	tick := time.NewTicker(op.options.SweepInterval)
	defer tick.Stop()
	reported := map[graph.EquivalentKinds]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		op.forgetSeries()
		op.reportEquivalents(reported)
	}
}

// reportEquivalents logs each pair of types that show the same objects once.
func (op *Operator) reportEquivalents(reported map[graph.EquivalentKinds]bool) {
	for _, pair := range op.store.EquivalentKinds() {
		if !reported[pair] {
			reported[pair] = true
			op.log.Info("Two types show the same objects, of which the first counts", "first", pair.First.String(), "second", pair.Second.String(),
				"fix", "name the resource of one of them in --ignore-resources")
		}
	}
}

// confirm runs the barrier's rounds.
func (op *Operator) confirm(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-op.collector.ConfirmPending():
		}
		began := op.now()
		op.collector.Confirm(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gather.BarrierInterval - op.now().Sub(began)):
		}
	}
}

// migrations is the type at which kube-controller-manager panics if its garbage collector
// is disabled and its storage-version-migrator-controller is not. That controller runs by
// default since Kubernetes 1.37.
var migrations = schema.GroupKind{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}

// typesChanged queues what waits for a type.
func (op *Operator) typesChanged(types *catalog.Catalog) {
	op.snapshots.Refresh()
	op.policiesChanged()
	if _, served := types.Preferred(migrations); served && !op.options.Companion {
		op.warnOfMigrations.Do(func() {
			op.log.Info("StorageVersionMigration is served: the first such object makes kube-controller-manager panic "+
				"if its garbage collector is switched off and its storage-version-migrator-controller is not", "fix", canary.Advice)
		})
	}
}
