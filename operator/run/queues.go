package run

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gleaner-dev/gleaner/operator/fairqueue"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
)

type queue = workqueue.TypedRateLimitingInterface[fairqueue.Item]

// queues connects the graph to the two work queues: one for objects with many owners, and
// one for all others.
type queues struct {
	store *graphstore.Store

	mu               sync.Mutex // covers the fields below
	regular, crowded queue
}

// connect sets a queue. Once both are set, objects are queued.
func (q *queues) connect(to queue, crowded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if crowded {
		q.crowded = to
	} else {
		q.regular = to
	}
	if q.regular == nil || q.crowded == nil {
		return
	}
	regular, apart := q.regular, q.crowded
	q.store.Feed(func(id graph.ID, namespace string, owners int) {
		if owners > graph.ManyOwners {
			apart.Add(fairqueue.Item{ID: id, Namespace: namespace})
			return
		}
		regular.Add(fairqueue.Item{ID: id, Namespace: namespace})
	})
}

// divert moves an object to the other queue if it has come to have many owners since it was
// queued, and reports whether it has.
func (q *queues) divert(i fairqueue.Item) bool {
	if q.store.OwnerCount(i.ID) <= graph.ManyOwners {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.crowded.Add(i)
	return true
}

// feed is the source of a controller: the graph.
type feed struct {
	queues  *queues
	crowded bool
	sync    func(context.Context) // waits until work may begin
}

var _ source.TypedSyncingSource[fairqueue.Item] = &feed{}

// Start connects the graph to the work queue.
func (f *feed) Start(_ context.Context, to queue) error {
	f.queues.connect(to, f.crowded)
	return nil
}

// WaitForSync waits until work may begin.
func (f *feed) WaitForSync(ctx context.Context) error {
	f.sync(ctx)
	return nil
}

// String names the source in the controller's log.
func (f *feed) String() string { return "owner graph" }

// waitForSync waits for all lists and for the policies, at most for SyncTimeout (G-11): a
// type that can't be read only delays the decisions that need it (defect 3.7). Without
// policies, every object would be held, and a record be made of each.
func (op *Operator) waitForSync(ctx context.Context) {
	defer debug.FreeOSMemory() // listing needs many times the memory of what is kept
	ctx, cancel := context.WithTimeout(ctx, op.options.SyncTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !op.watcher.Synced() || op.snapshots.Policies() == nil {
		select {
		case <-ctx.Done():
			op.log.Info("Starting before everything is listed", "missing", op.watcher.Unsynced(), "policiesRead", op.snapshots.Policies() != nil)
			return
		case <-tick.C:
		}
	}
}

// reconcileRegular reconciles an object that is not crowded.
func (op *Operator) reconcileRegular(ctx context.Context, i fairqueue.Item) (reconcile.Result, error) {
	if op.queues.divert(i) {
		return reconcile.Result{}, nil
	}
	return op.collector.Reconcile(ctx, i.ID)
}

// reconcileCrowded reconciles an object with many owners.
func (op *Operator) reconcileCrowded(ctx context.Context, i fairqueue.Item) (reconcile.Result, error) {
	return op.collector.ReconcileCrowded(ctx, i.ID)
}
