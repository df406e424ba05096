package graphstore

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// child returns a ConfigMap with owners, by UID.
func child(name, resourceVersion string, owners ...string) graph.Object {
	o := graph.Object{UID: types.UID(name), ResourceVersion: resourceVersion, Kind: configMap, Namespace: "ns", Name: name}
	for _, uid := range owners {
		o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: uid, UID: types.UID(uid)})
	}
	return o
}

// fixture is a Store with a fixed clock, and what it has queued.
type fixture struct {
	*Store
	t      time.Time
	queued []string
	names  map[graph.ID]string
}

func newFixture(names ...string) *fixture {
	d := &fixture{t: time.Unix(1000, 0), names: map[graph.ID]string{}}
	for _, name := range names {
		d.names[id(name)] = name
	}
	d.Store = New(func() time.Time { return d.t })
	return d
}

func id(uid string) graph.ID { return graph.IDOf(types.UID(uid)) }

func (d *fixture) add(id graph.ID, _ string, _ int) { d.queued = append(d.queued, d.names[id]) }

// taken returns the names of the objects that were queued since the last call, sorted.
func (d *fixture) taken() []string {
	queued := d.queued
	d.queued = nil
	slices.Sort(queued)
	return slices.Compact(queued)
}

// Before it leads, a replica keeps the graph and queues nothing. A leader queues every
// object that needs work, whenever that was learned.
func TestLead_QueuesEverything_FollowerNothing(t *testing.T) {
	d := newFixture("orphan", "waits", "owned", "owner")
	waits := child("waits", "3")
	waits.Terminating, waits.Foreground = true, true
	d.Apply(
		graph.Seen{Object: child("orphan", "1", "lost")}, graph.Seen{Object: waits},
		graph.Seen{Object: child("owner", "4")}, graph.Seen{Object: child("owned", "5", "owner")},
	)
	if got := d.taken(); len(got) != 0 || d.PendingCount() != 0 {
		t.Errorf("a follower queued %v, and %d wait", got, d.PendingCount())
	}
	d.Feed(d.add)
	d.Lead()
	if diff := cmp.Diff([]string{"orphan", "waits"}, d.taken()); diff != "" || d.PendingCount() != 2 {
		t.Errorf("%d wait\n%s", d.PendingCount(), diff)
	}
	d.Apply(graph.Deleted{Object: child("owner", "6"), At: d.t})
	if diff := cmp.Diff([]string{"owned"}, d.taken()); diff != "" {
		t.Errorf("once it leads: %s", diff)
	}
	d.Sweep()
	if diff := cmp.Diff([]string{"orphan", "owned", "waits"}, d.taken()); diff != "" {
		t.Errorf("in a sweep: %s", diff)
	}
}

// Defect 3.13: a heartbeat queues nothing. Defect 3.28: except for an object whose last
// write failed, which is retried after any change.
func TestFinish_AfterAFailure_AnyChangeQueuesTheObject(t *testing.T) {
	d := newFixture("a", "b")
	d.Feed(d.add)
	d.Lead()
	d.Apply(graph.Seen{Object: child("a", "1", "lost")}, graph.Seen{Object: child("b", "2", "lost")})
	d.taken()
	d.Finish(id("a"), true)
	d.Finish(id("b"), false)
	for _, step := range []struct {
		name  string
		event graph.Event
		want  []string
	}{
		{"a change of an object whose write succeeded", graph.Seen{Object: child("b", "3", "lost")}, nil},
		{"a change of nothing but the resourceVersion", graph.Seen{Object: child("a", "4", "lost")}, []string{"a"}},
		{"another one, before it is reconciled", graph.Seen{Object: child("a", "5", "lost")}, nil},
	} {
		d.Apply(step.event)
		if diff := cmp.Diff(step.want, d.taken()); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
	d.Finish(id("a"), true)
	d.Finish(id("a"), false)
	d.Apply(graph.Seen{Object: child("a", "6", "lost")})
	if got := d.taken(); len(got) != 0 {
		t.Errorf("after its write succeeded: %v", got)
	}
}

// The canary looks like an object to finalize, which is left to other collectors.
func TestSetCanary_IsNeverQueued(t *testing.T) {
	d := newFixture("bird", "other")
	probe, other := child("bird", "1"), child("other", "2")
	for _, o := range []*graph.Object{&probe, &other} {
		o.Terminating, o.Foreground = true, true
	}
	d.Feed(d.add)
	d.Lead()
	d.SetCanary("bird")
	d.Apply(graph.Seen{Object: probe}, graph.Seen{Object: other})
	d.Sweep()
	d.Requeue([]graph.ID{id("bird"), id("other")})
	if diff := cmp.Diff([]string{"other"}, d.taken()); diff != "" {
		t.Error(diff)
	}
	if !d.IsCanary(id("bird")) || d.IsCanary(id("other")) {
		t.Error("not distinguished from others")
	}
	d.SetCanary("next")
	d.Sweep()
	if diff := cmp.Diff([]string{"bird", "other"}, d.taken()); diff != "" || d.IsCanary(id("bird")) {
		t.Errorf("a previous canary: %s", diff)
	}
}

func TestOldestPending(t *testing.T) {
	d := newFixture("a", "b")
	d.Feed(d.add)
	d.Lead()
	pass := func(seconds int) { d.t = d.t.Add(time.Duration(seconds) * time.Second) }
	check := func(when string, want time.Duration, waiting int) {
		t.Helper()
		if got := d.OldestPending(); got != want || d.PendingCount() != waiting {
			t.Errorf("%s: %s, and %d wait; want %s and %d", when, got, d.PendingCount(), want, waiting)
		}
	}
	check("with nothing to do", 0, 0)
	d.Apply(graph.Seen{Object: child("a", "1", "lost")})
	pass(3)
	d.Apply(graph.Seen{Object: child("b", "2", "lost")})
	check("two wait", 3*time.Second, 2)
	pass(1)
	d.Requeue([]graph.ID{id("a")})
	check("requeued, it waits no less", 4*time.Second, 2)
	d.Begin(id("a"))
	check("being reconciled, it still counts", 4*time.Second, 2)
	d.Finish(id("a"), false)
	check("the first is done", time.Second, 1)
	d.Begin(id("b"))
	d.Finish(id("b"), true)
	check("the other one failed", 0, 0)
}

func TestOldestQueued_AreFewAndTheOldestFirst(t *testing.T) {
	d := newFixture("a", "b", "c")
	d.Feed(d.add)
	d.Lead()
	for _, name := range []string{"a", "b", "c"} {
		d.t = d.t.Add(time.Second)
		d.Apply(graph.Seen{Object: child(name, "1", "lost")})
	}
	d.Begin(id("b"))
	var got []string
	for _, q := range d.OldestQueued(2) {
		got = append(got, fmt.Sprint(q.Object.Name, " ", d.t.Sub(q.Since), " ", q.Reconciling))
	}
	if diff := cmp.Diff([]string{"a 2s false", "b 1s true"}, got); diff != "" {
		t.Error(diff)
	}
	if n := len(d.OldestQueued(10)); n != 3 {
		t.Errorf("%d are queued", n)
	}
}

// What is learned while an object is being reconciled queues it again.
func TestBegin_ObjectThatIsQueuedMeanwhileStaysPending(t *testing.T) {
	d := newFixture("a")
	d.Feed(d.add)
	d.Lead()
	d.Apply(graph.Seen{Object: child("a", "1", "lost")})
	d.taken()
	d.Begin(id("a")) // it is in hand
	d.Apply(graph.Seen{Object: child("a", "2", "lost", "also lost")})
	d.Finish(id("a"), false)
	if queued := d.taken(); len(queued) != d.PendingCount() {
		t.Errorf("queued are %v, and %d wait", queued, d.PendingCount())
	}
}

// The work queue never works on one object twice at a time. It would not recognize the
// object in another namespace.
func TestQueue_NamespaceOfAnObjectIsConstant(t *testing.T) {
	d := newFixture("a")
	type item struct {
		id        graph.ID
		namespace string
	}
	var items []item
	d.Feed(func(id graph.ID, namespace string, _ int) { items = append(items, item{id, namespace}) })
	d.Lead()
	d.Apply(graph.Seen{Object: child("a", "1", "lost")})
	d.Apply(graph.TypeGone{Kind: configMap.GroupKind()})
	d.Requeue([]graph.ID{id("a")}) // a round of the barrier that began before
	for _, i := range items {
		if i != items[0] {
			t.Errorf("%v and %v", items[0], i)
		}
	}
}

// Scenario 9: many at once, for the race detector.
func TestStore_ConcurrentUse(t *testing.T) {
	k := New(time.Now)
	k.Feed(func(graph.ID, string, int) {})
	k.Lead()
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 100 {
				uid := fmt.Sprintf("%d-%d", w, i%10)
				k.Apply(graph.Seen{Object: child(uid, fmt.Sprint(i+1), "lost")})
				k.Lookup(id(uid))
				k.Cycle(id(uid))
				k.Finish(id(uid), i%2 == 0)
				k.SetCanary(types.UID(uid))
				k.IsCanary(id(uid))
				k.Sweep()
				k.Dump()
				k.Has(types.UID(uid))
				k.OldestPending()
				k.Stats()
			}
		})
	}
	all.Wait()
}
