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

func (w *fixture) askDiscovery(context.Context, schema.GroupVersionResource) (bool, error) {
	return w.serves()
}

// outcome is the status of the owner, with the requests and events.
type outcome struct {
	Status        decide.OwnerStatus
	Unwatched     bool
	FoundAbsentAt time.Time
	Requests      []string
	Observed      []graph.Event
}

func outcomeOf(w *fixture, o decide.Owner) outcome {
	return outcome{Status: o.Status, Unwatched: o.Unwatched, FoundAbsentAt: o.FoundAbsentAt, Requests: w.api.requests(), Observed: *w.observed}
}

// owned is the view of a pod with one owner, of which the graph knows this.
func owned(namespace string, kind schema.GroupVersionKind, known graph.OwnerState) graph.View {
	ref := reference(kind)
	v := graph.View{ID: id("child"), Object: child("child", namespace, ref)}
	claim := graph.Claim{Reference: ref, State: known}
	switch known {
	case graph.Gone, graph.ProvenAbsent:
		claim.OwnerVersion, claim.GoneAt = kind.Version, start.Add(-time.Minute)
	case graph.Present, graph.Foreground:
		claim.OwnerVersion = kind.Version
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

func TestGather_OwnerStatus(t *testing.T) {
	minuteAgo := start.Add(-time.Minute)
	stands, waits := meta("ns", "owner", "owner"), meta("ns", "owner", "owner", "foregroundDeletion")
	orphans, held := meta("ns", "owner", "owner", "orphan"), meta("ns", "owner", "owner", "example.com/hold")
	other := meta("ns", "owner", "another")
	for name, c := range map[string]struct {
		namespace string
		kind      schema.GroupVersionKind
		known     graph.OwnerState
		responses map[string]http.HandlerFunc
		want      outcome
	}{
		"gone, by a local type: the watch proves it": {"ns", configMap, graph.Gone, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: minuteAgo}},
		"gone, by an aggregated type: read twice, no event": {"ns", remote, graph.Gone, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{remotePath, remotePath}}},
		"gone, and its type with it: the watch proves it": {"ns", unknown, graph.Gone, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: minuteAgo}},
		"disproved: that read proves it": {"ns", configMap, graph.ProvenAbsent, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: minuteAgo}},
		"standing: the watch proves it": {"ns", configMap, graph.Present, nil,
			outcome{Status: decide.Present}},
		"standing, by an aggregated type: the watch proves it": {"ns", remote, graph.Present, nil,
			outcome{Status: decide.Present}},
		"G-36: standing, named by a version that is not served: unknown": {"ns", widgetOld, graph.Present, nil,
			outcome{}},
		"orphaning: the graph is used": {"ns", configMap, graph.Orphaning, nil,
			outcome{Status: decide.Orphaning}},
		"orphaning, by a type that is not served: the graph is used": {"ns", unknown, graph.Orphaning, nil,
			outcome{Status: decide.Orphaning}},

		"foreground: read, and it waits": {"ns", configMap, graph.Foreground, map[string]http.HandlerFunc{mapPath: cachedRead(waits)},
			outcome{Status: decide.Waiting, Unwatched: true, Requests: []string{mapPath}, Observed: []graph.Event{read(configMap, waits)}}},
		"foreground: read, and now orphaning": {"ns", configMap, graph.Foreground, map[string]http.HandlerFunc{mapPath: cachedRead(orphans)},
			outcome{Status: decide.Orphaning, Unwatched: true, Requests: []string{mapPath}, Observed: []graph.Event{read(configMap, orphans)}}},
		"foreground: read, and it is only held since (A-09)": {"ns", configMap, graph.Foreground, map[string]http.HandlerFunc{mapPath: cachedRead(held)},
			outcome{Status: decide.Present, Unwatched: true, Requests: []string{mapPath}, Observed: []graph.Event{read(configMap, held)}}},
		"foreground, by a type that is not served: unknown": {"ns", unknown, graph.Foreground, nil, outcome{}},

		"unseen: read and found": {"ns", configMap, graph.Unseen, map[string]http.HandlerFunc{mapPath: cachedRead(stands)},
			outcome{Status: decide.Present, Unwatched: true, Requests: []string{mapPath}, Observed: []graph.Event{read(configMap, stands)}}},
		"unseen: read, and there is none": {"ns", configMap, graph.Unseen, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{mapPath}, Observed: []graph.Event{absent(configMap, "ns")}}},
		"unseen: read, and that name has another UID": {"ns", configMap, graph.Unseen, map[string]http.HandlerFunc{mapPath: cachedRead(other)},
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{mapPath}, Observed: []graph.Event{absent(configMap, "ns")}}},
		"unseen, by an aggregated type: read twice": {"ns", remote, graph.Unseen, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{remotePath, remotePath}}},
		"unseen, by an aggregated type: another UID must be read twice, too": {"ns", remote, graph.Unseen, map[string]http.HandlerFunc{remotePath: cachedRead(other)},
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{remotePath, remotePath}}},
		"G-36: unseen, by a type that is not served: unknown": {"ns", unknown, graph.Unseen, nil, outcome{}},
		"unseen, cluster-scoped: read without the namespace": {"ns", node, graph.Unseen, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{nodePath}, Observed: []graph.Event{absent(node, "")}}},
		"cluster-scoped child and owner": {"", node, graph.Unseen, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{nodePath}, Observed: []graph.Event{absent(node, "")}}},
		"G-34: a cluster-scoped child of a namespaced owner": {"", configMap, graph.Unseen, nil,
			outcome{Status: decide.Unresolvable}},
		"G-34: also where the owner is seen": {"", configMap, graph.Elsewhere, nil,
			outcome{Status: decide.Unresolvable}},
		"G-34: elsewhere, and not where it is claimed": {"ns", configMap, graph.Elsewhere, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{mapPath}, Observed: []graph.Event{absent(configMap, "ns")}}},
		"elsewhere, but a read finds it with the claimed coordinates": {"ns", configMap, graph.Elsewhere, map[string]http.HandlerFunc{mapPath: cachedRead(stands)},
			outcome{Status: decide.Present, Unwatched: true, Requests: []string{mapPath}, Observed: []graph.Event{read(configMap, stands)}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, fixedGraph{id("child"): owned(c.namespace, c.kind, c.known)}, noOwner)
			for at, response := range c.responses {
				w.api.answer(at, response)
			}
			if diff := cmp.Diff(c.want, outcomeOf(w, one(t, w, "child"))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Proofs from before an interruption of the watch may be obsolete, since the storage may
// have been restored. The owner is read again if possible.
func TestGather_RereadsAStaleAbsence(t *testing.T) {
	minuteAgo := start.Add(-time.Minute)
	present := meta("ns", "owner", "owner")
	for name, c := range map[string]struct {
		kind      schema.GroupVersionKind
		known     graph.OwnerState
		responses map[string]http.HandlerFunc
		want      outcome
	}{
		"watched, and present again": {configMap, graph.Gone, map[string]http.HandlerFunc{mapPath: cachedRead(present)},
			outcome{Status: decide.Present, Unwatched: true, Requests: []string{mapPath}, Observed: []graph.Event{read(configMap, present)}}},
		"watched, and it is gone": {configMap, graph.Gone, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: start, Requests: []string{mapPath}, Observed: []graph.Event{absent(configMap, "ns")}}},
		"read, and present again": {configMap, graph.ProvenAbsent, map[string]http.HandlerFunc{mapPath: cachedRead(present)},
			outcome{Status: decide.Present, Unwatched: true, Requests: []string{mapPath}, Observed: []graph.Event{read(configMap, present)}}},
		"watched, and its type is gone with it: it cannot be read": {unknown, graph.Gone, nil,
			outcome{Status: decide.Absent, FoundAbsentAt: minuteAgo}},
	} {
		t.Run(name, func(t *testing.T) {
			view := owned("ns", c.kind, c.known)
			view.Claims[0].Stale = true
			w := newFixture(t, fixedGraph{id("child"): view}, noOwner)
			for at, response := range c.responses {
				w.api.answer(at, response)
			}
			if diff := cmp.Diff(c.want, outcomeOf(w, one(t, w, "child"))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The watch of an aggregated type proves nothing while the type is served, or while it is
// unknown whether it is served.
func TestGather_GoneOwnerOfAStaleAggregatedTypeIsUnknown(t *testing.T) {
	w := newFixture(t, fixedGraph{id("child"): owned("ns", remote, graph.Gone)}, noOwner)
	lists := discovered()
	stale := catalog.Build(nil, lists[:2], catalog.Settings{
		Local: local, Previous: served(),
		Failed: map[schema.GroupVersion]error{remote.GroupVersion(): errors.New("service unavailable")},
	})
	w.Catalog = func() *catalog.Catalog { return stale }
	w.api.answer(remotePath, body(http.StatusServiceUnavailable, "text/plain", "no endpoints available"))
	if got := one(t, w, "child"); got.Status != decide.Unknown {
		t.Errorf("status is %s: %s", got.Status, got.Message)
	}
}

func TestGather_SkipsOwnersOfTerminatingObjects(t *testing.T) {
	view := owned("ns", configMap, graph.Unseen)
	view.Object.Terminating = true
	w := newFixture(t, fixedGraph{id("child"): view}, noOwner)
	if diff := cmp.Diff(outcome{}, outcomeOf(w, one(t, w, "child"))); diff != "" {
		t.Error(diff)
	}
}

func TestGather_UnknownObjectHasNoFacts(t *testing.T) {
	w := newFixture(t, fixedGraph{}, noOwner)
	if facts, ok := w.Gather(t.Context(), id("child")); ok {
		t.Errorf("got %+v", facts)
	}
}

// G-33: only another namespace is reported, not the cluster scope.
func TestGather_ReportsAnOwnerInAnotherNamespace(t *testing.T) {
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
			w := newFixture(t, fixedGraph{id("child"): view}, noOwner)
			got := one(t, w, "child")
			if got.ActualNamespace != c.want {
				t.Errorf("elsewhere %q, want %q", got.ActualNamespace, c.want)
			}
		})
	}
}

// G-46: the absence of an owner is proved once for all its dependents, since the graph keeps
// the proof until it expires (defect 3.23).
func TestGather_ProvesAbsenceOnce(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newFixture(t, g, g.apply)
	for _, uid := range []string{"a", "b", "c"} {
		g.apply(graph.Seen{Object: child(uid, "ns", reference(configMap))})
	}
	for _, uid := range []string{"a", "b", "c"} {
		if got := one(t, w, uid); got.Status != decide.Absent {
			t.Errorf("owner of %s is %s: %s", uid, got.Status, got.Message)
		}
	}
	want := outcome{Requests: []string{mapPath}, Observed: []graph.Event{absent(configMap, "ns")}}
	if diff := cmp.Diff(want, outcome{Requests: w.api.requests(), Observed: *w.observed}); diff != "" {
		t.Error(diff)
	}
	g.apply(graph.Expired{Before: start.Add(time.Second)})
	one(t, w, "a")
	if diff := cmp.Diff([]string{mapPath}, w.api.requests()); diff != "" {
		t.Errorf("after the proof expired: %s", diff)
	}
}

// G-37: a proof about an invalid reference does not apply to a valid one.
func TestProof_AppliesOnlyToTheSameCoordinates(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newFixture(t, g, g.apply)
	w.api.answer(mapPath, cachedRead(meta("ns", "owner", "owner")))
	g.apply(
		graph.Seen{Object: child("bad", "ns", reference(widget))},
		graph.Seen{Object: child("afar", "other", reference(configMap))},
		graph.Seen{Object: child("good", "ns", reference(configMap))},
	)
	got := map[string]decide.OwnerStatus{}
	for _, uid := range []string{"bad", "afar", "good"} {
		got[uid] = one(t, w, uid).Status
	}
	want := map[string]decide.OwnerStatus{"bad": decide.Absent, "afar": decide.Absent, "good": decide.Present}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A later read that finds the owner overrides an earlier one that did not.
func TestGather_LaterReadOverridesAProof(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newFixture(t, g, g.apply)
	g.apply(graph.Seen{Object: graph.Object{UID: "first", Kind: configMap, Namespace: "ns", Name: "first", ResourceVersion: "10"}},
		graph.Seen{Object: child("child", "ns", reference(configMap))},
		absent(configMap, "ns"),
		read(configMap, meta("ns", "owner", "owner")))
	w.api.answer(mapPath, cachedRead(meta("ns", "owner", "owner")))
	if got := one(t, w, "child"); got.Status != decide.Present {
		t.Errorf("status is %s: %s", got.Status, got.Message)
	}
}

func TestRefresh_ObservesTheResult(t *testing.T) {
	changed := meta("ns", "owner", "owner", "orphan")
	for name, c := range map[string]struct {
		object   graph.Object
		response http.HandlerFunc
		serves   bool
		want     outcome
		fails    bool
	}{
		"the object as it is now": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, cachedRead(changed), true,
			outcome{Requests: []string{mapPath}, Observed: []graph.Event{read(configMap, changed)}}, false},
		"that it is gone": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, nil, true,
			outcome{Requests: []string{mapPath}, Observed: []graph.Event{absent(configMap, "ns")}}, false},
		"that another one took its name": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, cachedRead(meta("ns", "owner", "another")), true,
			outcome{Requests: []string{mapPath}, Observed: []graph.Event{absent(configMap, "ns")}}, false},
		"nothing, of an aggregated type that returns 404": {graph.Object{UID: "owner", Kind: remote, Namespace: "ns", Name: "owner"}, nil, true,
			outcome{Requests: []string{remotePath, remotePath}}, false},
		"nothing, if the type is not served at this moment": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, nil, false,
			outcome{Requests: []string{mapPath}}, true},
		"nothing, if the read fails": {graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}, body(http.StatusNotFound, "text/html", "404"), true,
			outcome{Requests: []string{mapPath}}, true},
		"nothing, of a type that is not served": {graph.Object{UID: "owner", Kind: unknown, Namespace: "ns", Name: "owner"}, nil, true,
			outcome{}, true},
		"defect 3.5: an object that was seen by a version no longer served": {graph.Object{UID: "owner", Kind: widgetOld, Namespace: "ns", Name: "owner"}, nil, true,
			outcome{Requests: []string{"/apis/example.com/v1/namespaces/ns/widgets/owner"}, Observed: []graph.Event{absent(widget, "ns")}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, fixedGraph{}, noOwner)
			w.serves = func() (bool, error) { return c.serves, nil }
			if c.response != nil {
				w.api.answer(mapPath, c.response)
			}
			err := w.Refresh(t.Context(), c.object)
			if (err != nil) != c.fails {
				t.Errorf("error: %v", err)
			}
			if diff := cmp.Diff(c.want, outcome{Requests: w.api.requests(), Observed: *w.observed}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestGather_IncludesTheView(t *testing.T) {
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}
	object := child("child", "ns", ref)
	object.Terminating, object.Foreground = true, true
	cycle := graph.Edge{Owner: id("owner"), Size: 2}
	g := cyclic{fixedGraph{id("child"): graph.View{ID: id("child"), Object: object, Dependents: 3, Blocking: 2,
		Claims: []graph.Claim{{Reference: ref}}}}, cycle}
	w := newFixture(t, g, noOwner)
	facts, _ := w.Gather(t.Context(), id("child"))
	want := decide.Facts{Object: object, Dependents: 3, Blocking: 2, Cycle: &cycle,
		Owners: []decide.Owner{{Reference: ref, Message: "not checked because the object itself is being deleted"}}}
	if diff := cmp.Diff(want, facts); diff != "" {
		t.Error(diff)
	}
}

// cyclic is a graph in which everything lies on a cycle.
type cyclic struct {
	fixedGraph
	edge graph.Edge
}

func (g cyclic) Cycle(graph.ID) (graph.Edge, bool) { return g.edge, true }

var _ gather.Graph = cyclic{}
