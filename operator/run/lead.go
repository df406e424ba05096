package run

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gather"
)

// AddTo adds the Operator to a manager. Every replica watches and keeps the graph, so that
// a new leader has it already; only the leader works. The manager's leader election is not
// used: see elect.
func (op *Operator) AddTo(mgr manager.Manager) error {
	w := work{op}
	regular, err := w.controller("gleaner", &feed{queues: op.queues, sync: w.waitForSync}, op.options.Workers, w.regular)
	if err != nil {
		return err
	}
	crowded, err := w.controller("gleaner-many-owners", &feed{queues: op.queues, sync: w.waitForSync, crowded: true}, 1, w.crowded)
	if err != nil {
		return err
	}
	if err := addAll(mgr,
		op.watch, op.keys.Run, op.modules.Run, op.snapshots.Run, op.finalizers.Run, op.sendEvents, upkeep{op}.run, op.confirm,
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

// maxPolicyWait is how long the first lists of objects wait for the policies, whose selectors are
// evaluated on what is listed.
const maxPolicyWait = 2 * time.Second

// watch watches all objects.
func (op *Operator) watch(ctx context.Context) error {
	published, timer := op.snapshots.Changed(), time.NewTimer(maxPolicyWait)
	defer timer.Stop()
	if op.snapshots.Current() == nil {
		select {
		case <-published:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return op.watcher.Run(ctx)
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
		case <-time.After(gather.RestAfter(op.now().Sub(began))):
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
	op.pausing.source.Refresh()
	op.budgeting.budgeter.Refresh()
	op.retention.Refresh()
	op.policiesChanged()
	if _, served := types.Preferred(migrations); served && !op.options.Companion {
		op.warnOfMigrations.Do(func() {
			op.log.Info("StorageVersionMigration is served: the first such object makes kube-controller-manager panic "+
				"if its garbage collector is switched off and its storage-version-migrator-controller is not", "fix", canary.Advice)
		})
	}
}
