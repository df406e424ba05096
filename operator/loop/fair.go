package loop

import (
	"container/list"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// item is what the work queue holds: an object, and the namespace that it
// takes its turn for.
type item struct {
	id        graph.ID
	namespace string
}

// fair orders the work queue: namespaces take turns, and each has its objects
// worked on in the order in which they came. A namespace with a hundred
// thousand objects to collect holds up no other (defect 3.12).
//
// A namespace starts another object only while it has fewer in work than there are
// idle workers. So one whose objects take long, because of a slow module or of owners
// that can't be read, occupies half of the workers at most, the next one half of the
// rest, and there is nearly always a worker for a namespace that has none.
//
// Its methods may be called concurrently.
type fair struct {
	workers int

	mu    sync.Mutex // covers what follows
	lanes map[string]*lane
	turns list.List // of lanes with objects in them; the front is next
	count int       // of objects that wait
	busy  int       // of objects in work
}

// lane is a namespace with objects that wait, or are in work.
type lane struct {
	namespace string
	items     list.List
	busy      int
	turn      *list.Element // in turns; nil while nothing waits
}

func newFair(workers int) *fair { return &fair{workers: workers, lanes: map[string]*lane{}} }

// Touch implements workqueue.Queue: an object that is added again keeps its place.
func (f *fair) Touch(item) {}

// Push implements workqueue.Queue.
func (f *fair) Push(i item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.lanes[i.namespace]
	if !ok {
		l = &lane{namespace: i.namespace}
		f.lanes[i.namespace] = l
	}
	if l.turn == nil {
		l.turn = f.turns.PushBack(l)
	}
	l.items.PushBack(i)
	f.count++
}

// Len implements workqueue.Queue.
func (f *fair) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Pop implements workqueue.Queue. It is called only when there is a next object.
func (f *fair) Pop() item {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.next()
	i := l.items.Remove(l.items.Front()).(item)
	f.count--
	f.busy++
	l.busy++
	if l.items.Len() == 0 {
		f.turns.Remove(l.turn)
		l.turn = nil
	} else {
		f.turns.MoveToBack(l.turn)
	}
	return i
}

// hasNext reports whether there is an object that may be worked on now.
func (f *fair) hasNext() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next() != nil
}

// next is the lane whose turn it is. It goes past lanes with objects in work alone, and
// so past no more of them than there are workers.
func (f *fair) next() *lane {
	for e := f.turns.Front(); e != nil; e = e.Next() {
		if l := e.Value.(*lane); l.busy < f.workers-f.busy {
			return l
		}
	}
	return nil
}

// done notes that an object is not in work any more.
func (f *fair) done(i item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.lanes[i.namespace]
	f.busy--
	if l.busy--; l.busy == 0 && l.items.Len() == 0 {
		delete(f.lanes, l.namespace)
	}
}

// lanes is a workqueue whose objects wait until fair lets them be worked on.
type lanes struct {
	workqueue.TypedInterface[item]
	order *fair

	mu      sync.Mutex // covers what follows
	changed *sync.Cond // something may be worked on now, or the end has come
	ending  bool
}

// newQueue makes the work queue for a number of workers.
func newQueue(workers int) func(string, workqueue.TypedRateLimiter[item]) workqueue.TypedRateLimitingInterface[item] {
	return func(name string, limiter workqueue.TypedRateLimiter[item]) workqueue.TypedRateLimitingInterface[item] {
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[item]{
			Name: name,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[item]{
				Name: name, Queue: newLanes(name, workers),
			}),
		})
	}
}

func newLanes(name string, workers int) *lanes {
	q := &lanes{order: newFair(workers)}
	q.TypedInterface = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[item]{Name: name, Queue: q.order})
	q.changed = sync.NewCond(&q.mu)
	return q
}

// Add implements workqueue.TypedInterface.
func (q *lanes) Add(i item) {
	q.TypedInterface.Add(i)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Signal()
}

// Get implements workqueue.TypedInterface. What waits at the end is still worked on.
func (q *lanes) Get() (item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.order.hasNext() && (!q.ending || q.order.Len() != 0) {
		q.changed.Wait()
	}
	i, ended := q.TypedInterface.Get() // which does not wait
	q.changed.Signal()                 // one signal may stand for several objects
	return i, ended
}

// Done implements workqueue.TypedInterface.
func (q *lanes) Done(i item) {
	q.order.done(i)
	q.TypedInterface.Done(i)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed.Signal()
}

// ShutDown implements workqueue.TypedInterface.
func (q *lanes) ShutDown() {
	q.TypedInterface.ShutDown()
	q.end()
}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *lanes) ShutDownWithDrain() {
	q.end()
	q.TypedInterface.ShutDownWithDrain()
}

func (q *lanes) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ending = true
	q.changed.Broadcast()
}
