package gather_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

func (w *world) askDiscovery(context.Context, schema.GroupVersionResource) (bool, error) {
	return w.serves()
}

// outcome is what gathering came to: how the owner stands, what it cost, and
// what was learnt by the way.
type outcome struct {
	Standing decide.Standing
	Polled   bool
	LearntAt time.Time
	Asked    []string
	Learnt   []graph.Event
}

func outcomeOf(w *world, o decide.Owner) outcome {
	return outcome{Standing: o.Standing, Polled: o.Polled, LearntAt: o.LearntAt, Asked: w.api.asks(), Learnt: *w.learnt}
}

// owned is the view of a pod with one owner, of which the graph knows this.
func owned(namespace string, kind schema.GroupVersionKind, known graph.Knowledge) graph.View {
	ref := reference(kind)
	v := graph.View{ID: id("child"), Object: child("child", namespace, ref)}
	claim := graph.Claim{Reference: ref, Known: known}
	switch known {
	case graph.Gone, graph.Disproved:
		claim.ByVersion, claim.GoneAt = kind.Version, start.Add(-time.Minute)
	case graph.Standing, graph.Foreground:
		claim.ByVersion = kind.Version
	default:
	}
	v.Claims = []graph.Claim{claim}
	return v
}

func read(kind schema.GroupVersionKind, o *metav1.PartialObjectMetadata) graph.Read {
	return graph.Read{Object: graph.ObjectOf(kind, o)}
}

func absent(kind schema.GroupVersionKind, namespace string) graph.Absent {
	return graph.Absent{Claim: graph.Coordinates{UID: "owner", Kind: kind, Namespace: namespace, Name: "owner"}, At: start}
}

func TestStandingOfAnOwner(t *testing.T) {
	minuteAgo := start.Add(-time.Minute)
	stands, waits := meta("ns", "owner", "owner"), meta("ns", "owner", "owner", "foregroundDeletion")
	orphans, held := meta("ns", "owner", "owner", "orphan"), meta("ns", "owner", "owner", "example.com/hold")
	other := meta("ns", "owner", "another")
	for name, c := range map[string]struct {
		namespace string
		kind      schema.GroupVersionKind
		known     graph.Knowledge
		answers   map[string]http.HandlerFunc
		want      outcome
	}{
		"gone, by a local type: the watch is believed": {"ns", configMap, graph.Gone, nil,
			outcome{Standing: decide.Absent, LearntAt: minuteAgo}},
		"gone, by an aggregated type: asked, twice, and not learnt": {"ns", remote, graph.Gone, nil,
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{remotePath, remotePath}}},
		"gone, and its type with it: the watch is believed": {"ns", unknown, graph.Gone, nil,
			outcome{Standing: decide.Absent, LearntAt: minuteAgo}},
		"disproved: that read is believed": {"ns", configMap, graph.Disproved, nil,
			outcome{Standing: decide.Absent, LearntAt: minuteAgo}},
		"standing: the watch is believed": {"ns", configMap, graph.Standing, nil,
			outcome{Standing: decide.Present}},
		"standing, by an aggregated type: the watch is believed": {"ns", remote, graph.Standing, nil,
			outcome{Standing: decide.Present}},
		"G-36: standing, named by a version that is not served: unknown": {"ns", widgetOld, graph.Standing, nil,
			outcome{}},
		"orphaning: the graph is believed": {"ns", configMap, graph.Orphaning, nil,
			outcome{Standing: decide.Orphaning}},
		"orphaning, by a type that is not served: the graph is believed": {"ns", unknown, graph.Orphaning, nil,
			outcome{Standing: decide.Orphaning}},

		"foreground: read, and it waits": {"ns", configMap, graph.Foreground, map[string]http.HandlerFunc{mapPath: found(waits)},
			outcome{Standing: decide.Waiting, Polled: true, Asked: []string{mapPath}, Learnt: []graph.Event{read(configMap, waits)}}},
		"foreground: read, and it was told to orphan since": {"ns", configMap, graph.Foreground, map[string]http.HandlerFunc{mapPath: found(orphans)},
			outcome{Standing: decide.Orphaning, Polled: true, Asked: []string{mapPath}, Learnt: []graph.Event{read(configMap, orphans)}}},
		"foreground: read, and it is only held since (A-09)": {"ns", configMap, graph.Foreground, map[string]http.HandlerFunc{mapPath: found(held)},
			outcome{Standing: decide.Present, Polled: true, Asked: []string{mapPath}, Learnt: []graph.Event{read(configMap, held)}}},
		"foreground, by a type that is not served: unknown": {"ns", unknown, graph.Foreground, nil, outcome{}},

		"unseen: read and found": {"ns", configMap, graph.Unseen, map[string]http.HandlerFunc{mapPath: found(stands)},
			outcome{Standing: decide.Present, Polled: true, Asked: []string{mapPath}, Learnt: []graph.Event{read(configMap, stands)}}},
		"unseen: read, and there is none": {"ns", configMap, graph.Unseen, nil,
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{mapPath}, Learnt: []graph.Event{absent(configMap, "ns")}}},
		"unseen: read, and that name has another UID": {"ns", configMap, graph.Unseen, map[string]http.HandlerFunc{mapPath: found(other)},
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{mapPath}, Learnt: []graph.Event{absent(configMap, "ns")}}},
		"unseen, by an aggregated type: read twice": {"ns", remote, graph.Unseen, nil,
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{remotePath, remotePath}}},
		"unseen, by an aggregated type: another UID counts only twice, too": {"ns", remote, graph.Unseen, map[string]http.HandlerFunc{remotePath: found(other)},
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{remotePath, remotePath}}},
		"G-36: unseen, by a type that is not served: unknown": {"ns", unknown, graph.Unseen, nil, outcome{}},
		"unseen, cluster-scoped: read without the namespace": {"ns", node, graph.Unseen, nil,
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{nodePath}, Learnt: []graph.Event{absent(node, "")}}},
		"cluster-scoped child and owner": {"", node, graph.Unseen, nil,
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{nodePath}, Learnt: []graph.Event{absent(node, "")}}},
		"G-34: a cluster-scoped child of a namespaced owner": {"", configMap, graph.Unseen, nil,
			outcome{Standing: decide.Unresolvable}},
		"G-34: also where the owner is seen": {"", configMap, graph.Elsewhere, nil,
			outcome{Standing: decide.Unresolvable}},
		"G-34: elsewhere, and not where it is claimed": {"ns", configMap, graph.Elsewhere, nil,
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{mapPath}, Learnt: []graph.Event{absent(configMap, "ns")}}},
		"elsewhere, but a read finds it where it is claimed": {"ns", configMap, graph.Elsewhere, map[string]http.HandlerFunc{mapPath: found(stands)},
			outcome{Standing: decide.Present, Polled: true, Asked: []string{mapPath}, Learnt: []graph.Event{read(configMap, stands)}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, told{id("child"): owned(c.namespace, c.kind, c.known)}, nobody)
			for at, answer := range c.answers {
				w.api.answer(at, answer)
			}
			if diff := cmp.Diff(c.want, outcomeOf(w, one(t, w, "child"))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What was learnt before a watch was interrupted may be of a storage that has
// been restored since. It is asked for again, where that is possible.
func TestDoubtedAbsenceIsAskedForAgain(t *testing.T) {
	minuteAgo := start.Add(-time.Minute)
	stands := meta("ns", "owner", "owner")
	for name, c := range map[string]struct {
		kind    schema.GroupVersionKind
		known   graph.Knowledge
		answers map[string]http.HandlerFunc
		want    outcome
	}{
		"watched, and it stands again": {configMap, graph.Gone, map[string]http.HandlerFunc{mapPath: found(stands)},
			outcome{Standing: decide.Present, Polled: true, Asked: []string{mapPath}, Learnt: []graph.Event{read(configMap, stands)}}},
		"watched, and it is gone": {configMap, graph.Gone, nil,
			outcome{Standing: decide.Absent, LearntAt: start, Asked: []string{mapPath}, Learnt: []graph.Event{absent(configMap, "ns")}}},
		"read, and it stands again": {configMap, graph.Disproved, map[string]http.HandlerFunc{mapPath: found(stands)},
			outcome{Standing: decide.Present, Polled: true, Asked: []string{mapPath}, Learnt: []graph.Event{read(configMap, stands)}}},
		"watched, and its type is gone with it: nobody can be asked": {unknown, graph.Gone, nil,
			outcome{Standing: decide.Absent, LearntAt: minuteAgo}},
	} {
		t.Run(name, func(t *testing.T) {
			view := owned("ns", c.kind, c.known)
			view.Claims[0].Doubted = true
			w := newWorld(t, told{id("child"): view}, nobody)
			for at, answer := range c.answers {
				w.api.answer(at, answer)
			}
			if diff := cmp.Diff(c.want, outcomeOf(w, one(t, w, "child"))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A watch of an aggregated type is not believed while the type is served; all
// the less may it be while nobody can say whether it is.
func TestAGoneOwnerOfAStaleAggregatedTypeIsUnknown(t *testing.T) {
	w := newWorld(t, told{id("child"): owned("ns", remote, graph.Gone)}, nobody)
	lists := discovered()
	stale := catalog.Build(nil, lists[:2], catalog.Settings{
		Local: local, Previous: served(),
		Failed: map[schema.GroupVersion]error{remote.GroupVersion(): errors.New("service unavailable")},
	})
	w.Catalog = func() *catalog.Catalog { return stale }
	w.api.answer(remotePath, body(http.StatusServiceUnavailable, "text/plain", "no endpoints available"))
	if got := one(t, w, "child"); got.Standing != decide.Unknown {
		t.Errorf("standing is %s: %s", got.Standing, got.Reason)
	}
}

func TestAnObjectThatIsBeingDeletedHasNoOwnersLookedAt(t *testing.T) {
	view := owned("ns", configMap, graph.Unseen)
	view.Object.Terminating = true
	w := newWorld(t, told{id("child"): view}, nobody)
	if diff := cmp.Diff(outcome{}, outcomeOf(w, one(t, w, "child"))); diff != "" {
		t.Error(diff)
	}
}

func TestAnObjectThatIsNotThereHasNoFacts(t *testing.T) {
	w := newWorld(t, told{}, nobody)
	if facts, ok := w.Gather(t.Context(), id("child")); ok {
		t.Errorf("got %+v", facts)
	}
}

// G-33: only another namespace is told of, not the cluster scope.
func TestAnOwnerSeenElsewhereIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		seen string
		want string
	}{
		"in another namespace": {"other", "other"},
		"cluster-scoped":       {"", ""},
		"in this namespace":    {"ns", ""},
	} {
		t.Run(name, func(t *testing.T) {
			view := owned("ns", configMap, graph.Elsewhere)
			view.Claims[0].OwnerNamespace = c.seen
			w := newWorld(t, told{id("child"): view}, nobody)
			got := one(t, w, "child")
			if got.Elsewhere != c.want {
				t.Errorf("elsewhere %q, want %q", got.Elsewhere, c.want)
			}
		})
	}
}

// G-46: the absence of an owner is asked for once, whatever the number of its
// dependents, since the graph keeps it; until it forgets (defect 3.23).
func TestTheAbsenceOfAnOwnerIsAskedForOnce(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newWorld(t, g, g.apply)
	for _, uid := range []string{"a", "b", "c"} {
		g.apply(graph.Seen{Object: child(uid, "ns", reference(configMap))})
	}
	for _, uid := range []string{"a", "b", "c"} {
		if got := one(t, w, uid); got.Standing != decide.Absent {
			t.Errorf("owner of %s is %s: %s", uid, got.Standing, got.Reason)
		}
	}
	want := outcome{Asked: []string{mapPath}, Learnt: []graph.Event{absent(configMap, "ns")}}
	if diff := cmp.Diff(want, outcome{Asked: w.api.asks(), Learnt: *w.learnt}); diff != "" {
		t.Error(diff)
	}
	g.apply(graph.Expired{Before: start.Add(time.Second)})
	one(t, w, "a")
	if diff := cmp.Diff([]string{mapPath}, w.api.asks()); diff != "" {
		t.Errorf("after the proof expired: %s", diff)
	}
}

// G-37: what a bad reference is found to claim says nothing of a good one.
func TestABadReferenceProvesNothingAboutAGoodOne(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newWorld(t, g, g.apply)
	w.api.answer(mapPath, found(meta("ns", "owner", "owner")))
	g.apply(
		graph.Seen{Object: child("bad", "ns", reference(widget))},
		graph.Seen{Object: child("afar", "other", reference(configMap))},
		graph.Seen{Object: child("good", "ns", reference(configMap))},
	)
	got := map[string]decide.Standing{}
	for _, uid := range []string{"bad", "afar", "good"} {
		got[uid] = one(t, w, uid).Standing
	}
	want := map[string]decide.Standing{"bad": decide.Absent, "afar": decide.Absent, "good": decide.Present}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A later read that shows the owner outweighs an earlier one that did not.
func TestAnOwnerThatAReadHasShownAfterAllIsNotAbsent(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newWorld(t, g, g.apply)
	g.apply(graph.Seen{Object: graph.Object{UID: "first", Kind: configMap, Namespace: "ns", Name: "first", ResourceVersion: "10"}},
		graph.Seen{Object: child("child", "ns", reference(configMap))},
		absent(configMap, "ns"),
		read(configMap, meta("ns", "owner", "owner")))
	w.api.answer(mapPath, found(meta("ns", "owner", "owner")))
	if got := one(t, w, "child"); got.Standing != decide.Present {
		t.Errorf("standing is %s: %s", got.Standing, got.Reason)
	}
}

func TestRereadHandsOnWhatItFinds(t *testing.T) {
	changed := meta("ns", "owner", "owner", "orphan")
	for name, c := range map[string]struct {
		object graph.Object
		answer http.HandlerFunc
		serves bool
		want   outcome
		fails  bool
	}{
		"the object as it is now": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, found(changed), true,
			outcome{Asked: []string{mapPath}, Learnt: []graph.Event{read(configMap, changed)}}, false},
		"that it is gone": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, nil, true,
			outcome{Asked: []string{mapPath}, Learnt: []graph.Event{absent(configMap, "ns")}}, false},
		"that another one took its name": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, found(meta("ns", "owner", "another")), true,
			outcome{Asked: []string{mapPath}, Learnt: []graph.Event{absent(configMap, "ns")}}, false},
		"nothing, of an aggregated type that says it is gone": {graph.Object{UID: "owner", Kind: remote, Namespace: "ns", Name: "owner"}, nil, true,
			outcome{Asked: []string{remotePath, remotePath}}, false},
		"nothing, if the type is not served at this moment": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, nil, false,
			outcome{Asked: []string{mapPath}}, true},
		"nothing, if the read fails": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, body(http.StatusNotFound, "text/html", "404"), true,
			outcome{Asked: []string{mapPath}}, true},
		"nothing, of a type that is not served": {graph.Object{UID: "owner", Kind: unknown, Namespace: "ns", Name: "owner"}, nil, true,
			outcome{}, true},
		"defect 3.5: an object that was seen by a version no longer served": {graph.Object{UID: "owner", Kind: widgetOld, Namespace: "ns", Name: "owner"}, nil, true,
			outcome{Asked: []string{"/apis/example.com/v1/namespaces/ns/widgets/owner"}, Learnt: []graph.Event{absent(widget, "ns")}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, told{}, nobody)
			w.serves = func() (bool, error) { return c.serves, nil }
			if c.answer != nil {
				w.api.answer(mapPath, c.answer)
			}
			err := w.Reread(t.Context(), c.object)
			if (err != nil) != c.fails {
				t.Errorf("error: %v", err)
			}
			if diff := cmp.Diff(c.want, outcome{Asked: w.api.asks(), Learnt: *w.learnt}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFactsTellWhatTheGraphKnows(t *testing.T) {
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}
	object := child("child", "ns", ref)
	object.Terminating, object.Foreground = true, true
	cycle := graph.Edge{Owner: id("owner"), Size: 2}
	g := cyclic{told{id("child"): graph.View{ID: id("child"), Object: object, Dependents: 3, Blocking: 2,
		Claims: []graph.Claim{{Reference: ref}}}}, cycle}
	w := newWorld(t, g, nobody)
	facts, _ := w.Gather(t.Context(), id("child"))
	want := decide.Facts{Object: object, Dependents: 3, Blocking: 2, Cycle: &cycle,
		Owners: []decide.Owner{{Reference: ref, Reason: "not looked at, since the object itself is being deleted"}}}
	if diff := cmp.Diff(want, facts); diff != "" {
		t.Error(diff)
	}
}

// cyclic is a graph in which everything lies on a cycle.
type cyclic struct {
	told
	edge graph.Edge
}

func (g cyclic) Cycle(graph.ID) (graph.Edge, bool) { return g.edge, true }

var _ gather.Graph = cyclic{}
