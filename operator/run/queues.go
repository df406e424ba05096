package run

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
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
