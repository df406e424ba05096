package run

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/gleaner-dev/gleaner/operator/fairqueue"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/watch"
)

// see applies a ConfigMap with a number of absent owners.
func see(s *graphstore.Store, name, version string, owners int) {
	o := graph.Object{UID: types.UID(name), ResourceVersion: version, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "ns", Name: name}
	for i := range owners {
		uid := types.UID(name + "-owner-" + string(rune('a'+i%26)) + time.Duration(i).String())
		o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: string(uid), UID: uid})
	}
	s.Apply(graph.Seen{Object: o})
}

// Objects with many owners have a queue of their own, whose age no alert is about.
func TestQueues_SeparateObjectsWithManyOwners(t *testing.T) {
	now := time.Unix(1000, 0)
	s := graphstore.New(func() time.Time { return now })
	s.Lead()
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[fairqueue.Item](time.Second, time.Second)
	regular, crowded := fairqueue.New(1)("", limiter), fairqueue.New(1)("", limiter)
	defer regular.ShutDown()
	defer crowded.ShutDown()
	see(s, "few", "1", 1)
	see(s, "many", "2", graph.ManyOwners+1)
	q := &queues{store: s}
	q.connect(crowded, true)
	q.connect(regular, false)
	if regular.Len() != 1 || crowded.Len() != 1 {
		t.Fatalf("%d in the regular queue, %d in the other one", regular.Len(), crowded.Len())
	}
	few, _ := regular.Get()
	if few.ID != graph.IDOf("few") {
		t.Errorf("in the regular queue is %s", few.ID)
	}
	now = now.Add(time.Hour)
	s.Begin(few.ID)
	s.Finish(few.ID, false)
	if oldest := s.OldestPending(); oldest != 0 {
		t.Errorf("the oldest object has been queued for %s", oldest)
	}
	many, _ := crowded.Get()
	crowded.Done(many)
	if !q.divert(many) || crowded.Len() != 1 || q.divert(few) {
		t.Errorf("an object that has come to have many owners stays in the regular queue; %d in the other one", crowded.Len())
	}
}

// A type that can't be listed doesn't keep everything.
func TestListed_AfterTheSyncTimeout(t *testing.T) {
	now := time.Unix(1000, 0)
	op := &Operator{watcher: watch.New(watch.Options{Log: logr.Discard()}), began: now, options: Options{SyncTimeout: time.Minute}, now: func() time.Time { return now }}
	if op.listed() {
		t.Error("everything is listed before anything was")
	}
	if now = now.Add(time.Minute); !op.listed() {
		t.Error("it still waits for the lists")
	}
}
