package fairqueue

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

func Test3_12_NamespacesTakeTurns(t *testing.T) {
	q := newOrder(100)
	push := func(namespace string, n ...byte) {
		for _, i := range n {
			q.Push(Item{ID: graph.ID{i}, Namespace: namespace})
		}
	}
	var got []string
	pop := func(n int) {
		for range n {
			i := q.Pop()
			got = append(got, fmt.Sprint(i.Namespace, i.ID[0]))
			q.done(i)
		}
	}
	push("big", 1, 2, 3, 4)
	push("small", 5)
	pop(2)
	push("late", 6, 7)
	push("big", 8)
	pop(q.Len())
	want := []string{"big1", "small5", "big2", "late6", "big3", "late7", "big4", "big8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if q.Len() != 0 || len(q.lanes) != 0 || q.turns.Len() != 0 {
		t.Errorf("left are %d items, %d lanes, %d turns", q.Len(), len(q.lanes), q.turns.Len())
	}
}

// queued returns an object in a namespace.
func queued(namespace string, n int) Item {
	return Item{ID: graph.ID{byte(n), byte(n >> 8)}, Namespace: namespace}
}

// However many slow objects a namespace has, half of the workers don't work on them, and
// the next such namespace gets half of the rest.
func TestOrder_SlowNamespaceOccupiesHalfOfTheIdleWorkers(t *testing.T) {
	for workers, want := range map[int]map[string]int{
		1:  {"a": 1},
		2:  {"a": 1, "b": 1},
		20: {"a": 10, "b": 5, "c": 3, "d": 1, "e": 1},
	} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			q, got := newOrder(workers), map[string]int{}
			for _, namespace := range []string{"a", "b", "c", "d", "e"} {
				for n := range 100 {
					q.Push(queued(namespace, n))
				}
				for q.hasNext() { // nothing is ever done
					got[q.Pop().Namespace]++
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A worker without an object that it may start is woken when that changes.
func TestQueue_ReturnsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, namespaces, each = 8, 5, 40
		q := newQueue("", workers)
		var mu sync.Mutex // covers the variables below
		done, busy, most := map[Item]int{}, map[string]int{}, map[string]int{}
		note := func(i Item, change int) {
			mu.Lock()
			defer mu.Unlock()
			busy[i.Namespace] += change
			most[i.Namespace] = max(most[i.Namespace], busy[i.Namespace])
			if change < 0 {
				done[i]++
			}
		}
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for {
					i, ended := q.Get()
					if ended {
						return
					}
					note(i, 1)
					time.Sleep(time.Second) // on the fake clock
					note(i, -1)
					q.Done(i)
				}
			})
		}
		for n := range each {
			for namespace := range namespaces {
				q.Add(queued(fmt.Sprint(namespace), n))
			}
		}
		q.Add(queued("0", 0)) // is in progress or queued
		q.ShutDown()
		all.Wait()
		if len(done) != namespaces*each {
			t.Errorf("%d objects were worked on", len(done))
		}
		for namespace, n := range most {
			if n > workers/2 {
				t.Errorf("namespace %s had %d objects in progress", namespace, n)
			}
		}
		if f := q.order; len(f.lanes) != 0 || f.busy != 0 || f.count != 0 {
			t.Errorf("left are %d lanes, %d busy, %d waiting", len(f.lanes), f.busy, f.count)
		}
	})
}

// Finding 8: 300 orphans whose module takes its time held up another namespace for 11.6 s.
func TestQueue_SlowNamespaceDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 20
		q := New(workers)("", workqueue.NewTypedItemExponentialFailureRateLimiter[Item](time.Second, time.Second))
		var all sync.WaitGroup
		served := make(chan struct{})
		for range workers {
			all.Go(func() {
				for {
					i, ended := q.Get()
					if ended {
						return
					}
					if i.Namespace == "quick" {
						close(served)
					} else {
						time.Sleep(10 * time.Second) // on the fake clock
					}
					q.Done(i)
				}
			})
		}
		for n := range 300 {
			q.Add(queued("slow", n))
		}
		synctest.Wait()
		began := time.Now()
		q.Add(queued("quick", 0))
		<-served
		if took := time.Since(began); took != 0 {
			t.Errorf("the other namespace waited %s", took)
		}
		q.ShutDown()
		all.Wait()
	})
}
