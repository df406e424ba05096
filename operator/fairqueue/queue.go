// Package fairqueue is the work queue of the collector: namespaces take turns, so that a
// namespace with many objects, or with slow ones, doesn't delay the others (defect 3.12).
package fairqueue

import (
	"container/list"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Item is a queued object and its namespace. An object must always be queued with the same
// namespace.
type Item struct {
	ID        graph.ID
	Namespace string
}

// New returns a constructor of queues for a number of workers, as controller-runtime wants it.
func New(workers int) func(string, workqueue.TypedRateLimiter[Item]) workqueue.TypedRateLimitingInterface[Item] {
	return func(name string, limiter workqueue.TypedRateLimiter[Item]) workqueue.TypedRateLimitingInterface[Item] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[Item]{
			Name: name,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Item]{
				Name: name, Queue: newQueue(name, workers),
			}),
		})
	}
}

// order is the order of the queue: namespaces take turns, and the objects of each are in
// the order in which they were added.
//
// A namespace starts another object only while it has fewer in progress than there are
// idle workers. So a namespace with slow objects, because of a slow module or of owners
// that can't be read, occupies at most half of the workers, the next one half of the
// rest, and there is nearly always a worker for a namespace that has none.
//
// Its methods may be called concurrently.
type order struct {
	workers int

	mu    sync.Mutex // covers the fields below
	lanes map[string]*lane
	turns list.List // of lanes with queued objects; the front is next
	count int       // of queued objects
	busy  int       // of objects in progress
}

// lane is a namespace with objects that are queued or in progress.
type lane struct {
	namespace string
	items     list.List
	busy      int
	turn      *list.Element // in turns; nil if nothing is queued
}

func newOrder(workers int) *order { return &order{workers: workers, lanes: map[string]*lane{}} }

// Touch implements workqueue.Queue: an object that is added again keeps its place.
func (o *order) Touch(Item) {}

// Push implements workqueue.Queue.
func (o *order) Push(i Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l, ok := o.lanes[i.Namespace]
	if !ok {
		l = &lane{namespace: i.Namespace}
		o.lanes[i.Namespace] = l
	}
	if l.turn == nil {
		l.turn = o.turns.PushBack(l)
	}
	l.items.PushBack(i)
	o.count++
}

// Len implements workqueue.Queue.
func (o *order) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count
}

// Pop implements workqueue.Queue. It is called only when there is a next object.
func (o *order) Pop() Item {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.next()
	i := l.items.Remove(l.items.Front()).(Item)
	o.count--
	o.busy++
	l.busy++
	if l.items.Len() == 0 {
		o.turns.Remove(l.turn)
		l.turn = nil
	} else {
		o.turns.MoveToBack(l.turn)
	}
	return i
}

// hasNext reports whether an object may be started.
func (o *order) hasNext() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.next() != nil
}

// next returns the lane with the next turn; nil if none may start an object. It only skips
// lanes with objects in progress, so at most as many as there are workers.
func (o *order) next() *lane {
	for e := o.turns.Front(); e != nil; e = e.Next() {
		if l := e.Value.(*lane); l.busy < o.workers-o.busy {
			return l
		}
	}
	return nil
}

// done marks an object as no longer in progress.
func (o *order) done(i Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lanes[i.Namespace]
	o.busy--
	if l.busy--; l.busy == 0 && l.items.Len() == 0 {
		delete(o.lanes, l.namespace)
	}
}

// queue is a work queue whose objects wait until order has one that may be started.
type queue struct {
	workqueue.TypedInterface[Item]
	order *order

	mu       sync.Mutex // covers the fields below
	changed  *sync.Cond // an object may be started, or the queue is shutting down
	stopping bool
}

func newQueue(name string, workers int) *queue {
	q := &queue{order: newOrder(workers)}
	q.TypedInterface = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[Item]{Name: name, Queue: q.order})
	q.changed = sync.NewCond(&q.mu)
	return q
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(i Item) {
	q.TypedInterface.Add(i)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Signal()
}

// Get implements workqueue.TypedInterface. After a shutdown, it still returns
// queued objects.
func (q *queue) Get() (Item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.order.hasNext() && (!q.stopping || q.order.Len() != 0) {
		q.changed.Wait()
	}
	i, ended := q.TypedInterface.Get() // does not wait
	q.changed.Signal()                 // one signal may be about several objects
	return i, ended
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(i Item) {
	q.order.done(i)
	q.TypedInterface.Done(i)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Signal()
}

// ShutDown implements workqueue.TypedInterface.
func (q *queue) ShutDown() {
	q.TypedInterface.ShutDown()
	q.stop()
}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *queue) ShutDownWithDrain() {
	q.stop()
	q.TypedInterface.ShutDownWithDrain()
}

func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopping = true
	q.changed.Broadcast()
}
