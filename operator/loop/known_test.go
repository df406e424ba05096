package loop

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

// child is a ConfigMap that names owners by UID.
func child(name, resourceVersion string, owners ...string) graph.Object {
	o := graph.Object{UID: types.UID(name), ResourceVersion: resourceVersion, Kind: configMap, Namespace: "ns", Name: name}
	for _, uid := range owners {
		o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: uid, UID: types.UID(uid)})
	}
	return o
}

// desk is a known with a clock that stands still, and what came to its queue.
type desk struct {
	*known
	t      time.Time
	queued []string
	names  map[graph.ID]string
}

func newDesk(names ...string) *desk {
	d := &desk{t: time.Unix(1000, 0), names: map[graph.ID]string{}}
	for _, name := range names {
		d.names[id(name)] = name
	}
	d.known = newKnown(func() time.Time { return d.t })
	return d
}

func id(uid string) graph.ID { return graph.IDOf(types.UID(uid)) }

func (d *desk) add(id graph.ID) { d.queued = append(d.queued, d.names[id]) }

// taken returns what was queued since the last call, each once and in order.
func (d *desk) taken() []string {
	queued := d.queued
	d.queued = nil
	slices.Sort(queued)
	return slices.Compact(queued)
}

// Before it leads, a replica keeps the graph and queues nothing; then it
// queues all that asks for something, whenever that was learnt.
func TestAFollowerQueuesNothingAndALeaderEverything(t *testing.T) {
	d := newDesk("orphan", "waits", "owned", "owner")
	waits := child("waits", "3")
	waits.Terminating, waits.Foreground = true, true
	d.Apply(
		graph.Seen{Object: child("orphan", "1", "lost")}, graph.Seen{Object: waits},
		graph.Seen{Object: child("owner", "4")}, graph.Seen{Object: child("owned", "5", "owner")},
	)
	if got := d.taken(); len(got) != 0 || d.waiting() != 0 {
		t.Errorf("a follower queued %v, and %d wait", got, d.waiting())
	}
	d.feed(d.add)
	d.lead()
	if diff := cmp.Diff([]string{"orphan", "waits"}, d.taken()); diff != "" || d.waiting() != 2 {
		t.Errorf("%d wait\n%s", d.waiting(), diff)
	}
	d.Apply(graph.Deleted{Object: child("owner", "6"), At: d.t})
	if diff := cmp.Diff([]string{"owned"}, d.taken()); diff != "" {
		t.Errorf("once it leads: %s", diff)
	}
	d.sweep()
	if diff := cmp.Diff([]string{"orphan", "owned", "waits"}, d.taken()); diff != "" {
		t.Errorf("in a sweep: %s", diff)
	}
}

// Defect 3.13: a heartbeat wakes nobody. Defect 3.28: except an object whose
// last write was refused, which is tried again on any change.
func TestARefusedObjectWakesOnAnyChange(t *testing.T) {
	d := newDesk("a", "b")
	d.feed(d.add)
	d.lead()
	d.Apply(graph.Seen{Object: child("a", "1", "lost")}, graph.Seen{Object: child("b", "2", "lost")})
	d.taken()
	d.settle(id("a"), true)
	d.settle(id("b"), false)
	for _, step := range []struct {
		name  string
		event graph.Event
		want  []string
	}{
		{"a change of one that is not refused", graph.Seen{Object: child("b", "3", "lost")}, nil},
		{"a change of nothing but the resourceVersion", graph.Seen{Object: child("a", "4", "lost")}, []string{"a"}},
		{"another, before it was looked at", graph.Seen{Object: child("a", "5", "lost")}, nil},
	} {
		d.Apply(step.event)
		if diff := cmp.Diff(step.want, d.taken()); diff != "" {
			t.Errorf("%s: %s", step.name, diff)
		}
	}
	d.settle(id("a"), true)
	d.settle(id("a"), false)
	d.Apply(graph.Seen{Object: child("a", "6", "lost")})
	if got := d.taken(); len(got) != 0 {
		t.Errorf("once its write went through: %v", got)
	}
}

// Our canary looks like an object to finish. That is left to others.
func TestOurOwnCanaryIsNeverQueued(t *testing.T) {
	d := newDesk("bird", "other")
	bird, other := child("bird", "1"), child("other", "2")
	for _, o := range []*graph.Object{&bird, &other} {
		o.Terminating, o.Foreground = true, true
	}
	d.feed(d.add)
	d.lead()
	d.ours("bird")
	d.Apply(graph.Seen{Object: bird}, graph.Seen{Object: other})
	d.sweep()
	d.again([]graph.ID{id("bird"), id("other")})
	if diff := cmp.Diff([]string{"other"}, d.taken()); diff != "" {
		t.Error(diff)
	}
	if !d.isOurs(id("bird")) || d.isOurs(id("other")) {
		t.Error("not to be told from others")
	}
	d.ours("next")
	d.sweep()
	if diff := cmp.Diff([]string{"bird", "other"}, d.taken()); diff != "" || d.isOurs(id("bird")) {
		t.Errorf("a canary of yesterday that was left behind: %s", diff)
	}
}

func TestHowLongTheOldestWaits(t *testing.T) {
	d := newDesk("a", "b")
	d.feed(d.add)
	d.lead()
	pass := func(seconds int) { d.t = d.t.Add(time.Duration(seconds) * time.Second) }
	check := func(when string, want time.Duration, waiting int) {
		t.Helper()
		if got := d.oldest(); got != want || d.waiting() != waiting {
			t.Errorf("%s: %s, and %d wait; want %s and %d", when, got, d.waiting(), want, waiting)
		}
	}
	check("with nothing to do", 0, 0)
	d.Apply(graph.Seen{Object: child("a", "1", "lost")})
	pass(3)
	d.Apply(graph.Seen{Object: child("b", "2", "lost")})
	check("two wait", 3*time.Second, 2)
	pass(1)
	d.again([]graph.ID{id("a")})
	check("asked for again, it waits no less", 4*time.Second, 2)
	d.take(id("a"))
	check("in hand, it waits still", 4*time.Second, 2)
	d.settle(id("a"), false)
	check("the first is done", time.Second, 1)
	d.take(id("b"))
	d.settle(id("b"), true)
	check("the other was refused", 0, 0)
}

// What is asked for while an object is in hand is still to be done after it.
func TestAnObjectThatIsQueuedWhileInHandStillWaits(t *testing.T) {
	d := newDesk("a")
	d.feed(d.add)
	d.lead()
	d.Apply(graph.Seen{Object: child("a", "1", "lost")})
	d.taken()
	d.take(id("a")) // it is in hand
	d.Apply(graph.Seen{Object: child("a", "2", "lost", "also lost")})
	d.settle(id("a"), false)
	if queued := d.taken(); len(queued) != d.waiting() {
		t.Errorf("queued are %v, and %d wait", queued, d.waiting())
	}
}

// The work queue keeps one object from being worked on twice at a time; it
// would not know the object again if it came as another item.
func TestAnObjectIsAlwaysTheSameItem(t *testing.T) {
	d := newDesk("a")
	var items []item
	d.feed(func(id graph.ID) { items = append(items, item{id: id, namespace: d.namespaceOf(id)}) })
	d.lead()
	d.Apply(graph.Seen{Object: child("a", "1", "lost")})
	d.Apply(graph.TypeGone{Kind: configMap.GroupKind()})
	d.again([]graph.ID{id("a")}) // a round of the barrier that began before
	for _, i := range items {
		if i != items[0] {
			t.Errorf("%v and %v", items[0], i)
		}
	}
}

// Scenario 9: many at once, for the race detector.
func TestKnownMayBeUsedConcurrently(t *testing.T) {
	k := newKnown(time.Now)
	k.feed(func(graph.ID) {})
	k.lead()
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 100 {
				uid := fmt.Sprintf("%d-%d", w, i%10)
				k.Apply(graph.Seen{Object: child(uid, fmt.Sprint(i+1), "lost")})
				k.Look(id(uid))
				k.Cycle(id(uid))
				k.settle(id(uid), i%2 == 0)
				k.ours(types.UID(uid))
				k.isOurs(id(uid))
				k.sweep()
				k.dump()
				k.has(types.UID(uid))
				k.oldest()
				k.stats()
			}
		})
	}
	all.Wait()
}
