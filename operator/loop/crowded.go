package loop

import (
	"context"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// A crowded object has more owner references than graph.ManyOwners. Whoever may create
// a ConfigMap can make up thousands, each of which is to be read before the object is
// known to have no owner. So crowded objects have a queue and a worker of their own,
// which rests most of the time: they are collected, but never at the expense of others.
const (
	// crowdedRest is how many times as long as it has worked the worker of crowded objects
	// rests, so that there is one read in flight for a fifth of the time.
	crowdedRest = 4

	// minCrowdedRest is how long it rests after a pass that has read as many owners as one
	// may: then it reads at most a hundred a second.
	minCrowdedRest = 5 * time.Second

	// crowdedTurn is for how long one object is worked on before another namespace has
	// its turn. A proof lives longer (proofLife), so that those of one turn count together.
	crowdedTurn = 8 * time.Minute

	// firstParking and longestParking are after what time an object is looked at again
	// whose owners could not all be read in one turn.
	firstParking   = time.Minute
	longestParking = time.Hour
)

// feeds connect the graph to the work queues.
type feeds struct {
	loop *Loop

	mu             sync.Mutex // covers what follows
	usual, crowded workqueue.TypedRateLimitingInterface[item]
}

// connect takes a queue, and begins to fill both once both are there.
func (f *feeds) connect(queue workqueue.TypedRateLimitingInterface[item], crowded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if crowded {
		f.crowded = queue
	} else {
		f.usual = queue
	}
	if f.usual == nil || f.crowded == nil {
		return
	}
	usual, apart, known := f.usual, f.crowded, f.loop.known
	f.loop.queueCrowded = apart.Add
	known.feed(func(id graph.ID) {
		i := item{id: id, namespace: known.namespaceOf(id)}
		if known.graph.Owners(id) > graph.ManyOwners {
			apart.Add(i)
			return
		}
		usual.Add(i)
	})
}

// feed is a controller's source: the graph.
type feed struct {
	feeds   *feeds
	crowded bool
}

var _ source.TypedSyncingSource[item] = &feed{}

// Start connects the graph to the work queue.
func (f *feed) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[item]) error {
	f.feeds.connect(queue, f.crowded)
	return nil
}

// WaitForSync waits for all lists and for the policies, and for SyncTimeout at most (G-11):
// a type that can't be read holds only the decisions that need it (defect 3.7). Without
// policies every object is held, with a record of that, which no start should be full of.
func (f *feed) WaitForSync(ctx context.Context) error {
	l := f.feeds.loop
	defer debug.FreeOSMemory() // listing leaves behind many times what is kept
	ctx, cancel := context.WithTimeout(ctx, l.options.SyncTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !l.watcher.Synced() || l.keeper.Policies() == nil {
		select {
		case <-ctx.Done():
			l.log.Info("Starting before everything is listed", "missing", l.watcher.Unsynced(), "policiesRead", l.keeper.Policies() != nil)
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// String names the source in the controller's log.
func (f *feed) String() string { return "owner graph" }

// reconcileUsual works on objects that are not crowded.
func (l *Loop) reconcileUsual(ctx context.Context, i item) (reconcile.Result, error) {
	if l.known.owners(i.id) > graph.ManyOwners { // it was not when it was queued
		l.queueCrowded(i)
		return reconcile.Result{}, nil
	}
	return l.Reconcile(ctx, i.id)
}

// reconcileCrowded works on a crowded object for as long as it gets on, at most for a
// turn, and then rests. It is called by one worker alone.
func (l *Loop) reconcileCrowded(ctx context.Context, i item) (reconcile.Result, error) {
	ends, left := l.now().Add(crowdedTurn), math.MaxInt
	for {
		began, before := l.now(), left
		result, err := l.Reconcile(ctx, i.id)
		left = l.parked.unread(i.id)
		l.pause(ctx, restAfter(l.now().Sub(began), left != 0))
		if err != nil || left == 0 || left >= before || ctx.Err() != nil || l.now().After(ends) {
			return result, err
		}
	}
}

// restAfter returns how long the worker of crowded objects rests after a pass.
func restAfter(took time.Duration, unread bool) time.Duration {
	if unread {
		return max(crowdedRest*took, minCrowdedRest)
	}
	return crowdedRest * took
}

// parked are the crowded objects of which owners are still to be read, and how many.
type parked struct {
	mu sync.Mutex // covers of
	of map[graph.ID]int
}

// note notes how many owners of an object are left to be read. It reports whether there
// are fewer than before.
func (p *parked) note(id graph.ID, facts decide.Facts) (progress bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, was := p.of[id]
	if facts.Unread == 0 && !facts.Object.Truncated {
		delete(p.of, id)
		return was
	}
	if p.of == nil {
		p.of = map[graph.ID]int{}
	}
	p.of[id] = facts.Unread
	return was && facts.Unread < before
}

// unread returns how many of an object's owners have not been read.
func (p *parked) unread(id graph.ID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[id]
}

// count returns how many objects are parked.
func (p *parked) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.of)
}

func (p *parked) forget(id graph.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}

func (p *parked) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.of)
}
