package loop

import (
	"container/list"

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
// thousand objects to collect holds up no other (defect 3.12). It is used by a
// workqueue, which guards it.
type fair struct {
	lanes map[string]*lane
	turns list.List // of lanes with objects in them; the front is next
	count int
}

type lane struct {
	namespace string
	items     list.List
}

func newFair() *fair { return &fair{lanes: map[string]*lane{}} }

// newQueue makes the work queue, ordered by fair.
func newQueue(name string, limiter workqueue.TypedRateLimiter[item]) workqueue.TypedRateLimitingInterface[item] {
	plain := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[item]{Name: name, Queue: newFair()})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[item]{
		Name: name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[item]{
			Name: name, Queue: plain,
		}),
	})
}

// Touch implements workqueue.Queue: an object that is added again keeps its place.
func (f *fair) Touch(item) {}

// Push implements workqueue.Queue.
func (f *fair) Push(i item) {
	l, ok := f.lanes[i.namespace]
	if !ok {
		l = &lane{namespace: i.namespace}
		f.lanes[i.namespace] = l
		f.turns.PushBack(l)
	}
	l.items.PushBack(i)
	f.count++
}

// Len implements workqueue.Queue.
func (f *fair) Len() int { return f.count }

// Pop implements workqueue.Queue. It is called only when Len is not 0.
func (f *fair) Pop() item {
	turn := f.turns.Front()
	l := turn.Value.(*lane)
	i := l.items.Remove(l.items.Front()).(item)
	f.count--
	if l.items.Len() == 0 {
		f.turns.Remove(turn)
		delete(f.lanes, l.namespace)
		return i
	}
	f.turns.MoveToBack(turn)
	return i
}
