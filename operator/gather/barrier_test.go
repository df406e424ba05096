package gather_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// waiting returns the view of an owner that waits for dependents of these kinds.
func waiting(uid, namespace string, kinds ...schema.GroupVersionKind) graph.View {
	v := graph.View{ID: id(uid), Object: graph.Object{
		UID: types.UID(uid), Kind: configMap, Namespace: namespace, Name: uid, ResourceVersion: "40", Terminating: true, Foreground: true,
	}}
	for _, k := range kinds {
		v.DependentKinds = append(v.DependentKinds, k.GroupKind())
	}
	return v
}

const widgets = "/apis/example.com/v1/namespaces/ns/widgets"

// everythingBut makes the lists of all types in the namespace except one empty.
func everythingBut(w *fixture, path string) {
	for _, p := range []string{
		podList, widgets, "/api/v1/namespaces/ns/configmaps", "/apis/remote.example.com/v1/namespaces/ns/remotes",
		"/api/v1/namespaces/other/pods", "/api/v1/namespaces/other/configmaps",
		"/apis/example.com/v1/namespaces/other/widgets", "/apis/remote.example.com/v1/namespaces/other/remotes",
	} {
		if p != path {
			w.api.answer(p, page(""))
		}
	}
}

// orphaning returns the view of an owner that orphans its dependents.
func orphaning(uid, namespace string, kinds ...schema.GroupVersionKind) graph.View {
	v := waiting(uid, namespace, kinds...)
	v.Object.Foreground, v.Object.Orphan = false, true
	return v
}

func views(vs ...graph.View) fixedGraph {
	g := fixedGraph{}
	for _, v := range vs {
		g[v.ID] = v
	}
	return g
}

// dependent returns a listed object with owners by UID.
func dependent(name string, owners ...string) *metav1.PartialObjectMetadata {
	o := meta("ns", name, name)
	for _, uid := range owners {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: uid, UID: types.UID(uid)})
	}
	return o
}

// confirmation is the result of Outcome, which is then consumed.
type confirmation struct {
	Confirmed bool
	Failed    bool
}

func confirmed(b *gather.Barrier, uid string) confirmation { return outcomeFor(b, uid, false) }

// left is confirmed for an owner that orphans.
func left(b *gather.Barrier, uid string) confirmation { return outcomeFor(b, uid, true) }

func outcomeFor(b *gather.Barrier, uid string, orphans bool) confirmation {
	ok, failure := b.Outcome(id(uid), orphans)
	if again, _ := b.Outcome(id(uid), orphans); again != ok {
		return confirmation{} // reading it must not consume it
	}
	b.Consume(id(uid))
	return confirmation{ok, failure != ""}
}

func round(t *testing.T, w *fixture, uids ...string) {
	t.Helper()
	var want []graph.ID
	for _, uid := range uids {
		w.Barrier.Request(id(uid))
		want = append(want, id(uid))
	}
	got := w.Barrier.RunRound(t.Context())
	byID := cmpopts.SortSlices(func(a, b graph.ID) bool { return a.String() < b.String() })
	if diff := cmp.Diff(want, got, byID, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("owners of the round: %s", diff)
	}
}

// Waiting owners share the lists: one for each kind and namespace.
func TestBarrier_ListsEachScopeOnce(t *testing.T) {
	w := newFixture(t, views(
		waiting("a", "ns", pod, widget), waiting("b", "ns", pod), waiting("c", "other", pod), waiting("d", "ns"),
		waiting("e", "", node, pod),
	), noOwner)
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", podList, "/api/v1/namespaces/other/pods", "/apis/example.com/v1/namespaces/ns/widgets"} {
		w.api.answer(path, page(""))
	}
	round(t, w, "a", "b", "c", "d", "e")
	got := w.api.requests()
	slices.Sort(got)
	want := []string{
		"/api/v1/namespaces/ns/pods?limit=500", "/api/v1/namespaces/other/pods?limit=500",
		"/api/v1/nodes?limit=500", "/api/v1/pods?limit=500", "/apis/example.com/v1/namespaces/ns/widgets?limit=500",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listed: %s", diff)
	}
	for _, uid := range []string{"a", "b", "c", "d", "e"} {
		if diff := cmp.Diff(confirmation{Confirmed: true}, confirmed(w.Barrier, uid)); diff != "" {
			t.Errorf("%s: %s", uid, diff)
		}
	}
}

// Other objects in a list are left to the watch.
func TestBarrier_ObservesOnlyRequestedDependents(t *testing.T) {
	w := newFixture(t, views(waiting("a", "ns", pod), waiting("b", "ns", pod), waiting("c", "ns", pod)), noOwner)
	requested, both, others, none := dependent("mine", "a"), dependent("both", "c", "b"), dependent("others", "c"), dependent("none")
	w.api.answer(podList, page("", requested, both, others, none))
	round(t, w, "a", "b")
	want := []graph.Event{read(pod, requested), read(pod, both)}
	if diff := cmp.Diff(want, *w.observed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(confirmation{}, confirmed(w.Barrier, "c")); diff != "" {
		t.Errorf("c was not requested: %s", diff)
	}
}

func TestBarrier_ReadsAllPages(t *testing.T) {
	w := newFixture(t, views(waiting("a", "ns", pod)), noOwner)
	first, second := dependent("first", "a"), dependent("second", "a")
	w.api.answer(podList, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "" {
			page("more", first)(rw, r)
			return
		}
		page("", second)(rw, r)
	})
	round(t, w, "a")
	if diff := cmp.Diff([]graph.Event{read(pod, first), read(pod, second)}, *w.observed); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{podList + "?limit=500", podList + "?continue=more&limit=500"}, w.api.requests()); diff != "" {
		t.Errorf("listed: %s", diff)
	}
}

// A list that fails, on any page, confirms none of the orphaning owners that it was for, and
// does not affect the others. The failure is returned once, so the next decision requests
// another round. An owner in foreground deletion is not kept (G-63).
func TestBarrier_FailedListKeepsItsOwners(t *testing.T) {
	expired := body(http.StatusGone, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	for name, response := range map[string]http.HandlerFunc{
		"500":                          body(http.StatusInternalServerError, "text/plain", "oops"),
		"403":                          body(http.StatusForbidden, "text/plain", "no"),
		"404 from a proxy":             body(http.StatusNotFound, "text/html", "404"),
		"404, the type does not exist": bare(),
		"a page for a login":           body(http.StatusOK, "text/html", "<h1>please log in</h1>"),
		"one object for a list":        cachedRead(meta("ns", "x", "x")),
		"the connection is cut":        cut,
		"the second page has expired": func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("continue") == "" {
				page("more")(rw, r)
				return
			}
			expired(rw, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, views(orphaning("a", "ns", pod, widget), orphaning("b", "ns", widget), orphaning("c", "other", pod), waiting("d", "ns", pod)), noOwner)
			everythingBut(w, podList)
			w.api.answer(podList, response)
			round(t, w, "a", "b", "c", "d")
			got := map[string]confirmation{"d": confirmed(w.Barrier, "d")}
			for _, uid := range []string{"a", "b", "c"} {
				got[uid] = left(w.Barrier, uid)
			}
			want := map[string]confirmation{"a": {Failed: true}, "b": {Failed: true}, "c": {Confirmed: true}, "d": {Confirmed: true}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(confirmation{}, left(w.Barrier, "a")); diff != "" {
				t.Errorf("outcome returned twice: %s", diff)
			}
		})
	}
}

// A confirmation is kept for half a minute from the start of its round, and used once.
func TestBarrier_OutcomeExpires(t *testing.T) {
	w := newFixture(t, views(waiting("a", "ns", pod)), noOwner)
	list := page("")
	w.api.answer(podList, func(rw http.ResponseWriter, r *http.Request) {
		w.clock.advance(time.Second)
		list(rw, r)
	})
	for after, want := range map[time.Duration]confirmation{
		29 * time.Second:                 {Confirmed: true},
		29*time.Second + time.Nanosecond: {},
	} {
		round(t, w, "a")
		w.clock.advance(after)
		if diff := cmp.Diff(want, confirmed(w.Barrier, "a")); diff != "" {
			t.Errorf("after %s: %s", after, diff)
		}
		if diff := cmp.Diff(confirmation{}, confirmed(w.Barrier, "a")); diff != "" {
			t.Errorf("a second time: %s", diff)
		}
	}
}

// 3.7, 3.17: before the finalizer of an orphaning owner is removed, all types are listed,
// including those without known dependents of such owners.
func TestBarrier_ListsAllKindsForAnOrphaningOwner(t *testing.T) {
	w := newFixture(t, views(orphaning("a", "ns", pod)), noOwner)
	everythingBut(w, widgets)
	w.api.answer(widgets, body(http.StatusInternalServerError, "text/plain", "conversion webhook"))
	round(t, w, "a")
	if diff := cmp.Diff(confirmation{Failed: true}, left(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
	w.api.answer(widgets, page(""))
	round(t, w, "a")
	if diff := cmp.Diff(confirmation{Confirmed: true}, left(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
}

// The catalog may temporarily lack a type. This is verified before the finalizer of an
// orphaning owner is removed.
func TestBarrier_OrphaningOwnerWaitsForAnUnwatchedType(t *testing.T) {
	w := newFixture(t, views(orphaning("a", "ns", unknown)), noOwner)
	everythingBut(w, "")
	for _, absent := range []bool{false, true} {
		w.absent = absent
		round(t, w, "a")
		if diff := cmp.Diff(confirmation{Failed: !absent, Confirmed: absent}, left(w.Barrier, "a")); diff != "" {
			t.Errorf("absent is %t: %s", absent, diff)
		}
	}
}

func TestBarrier_ConfirmsOnlyRequestedOwners(t *testing.T) {
	w := newFixture(t, views(waiting("a", "ns", pod)), noOwner)
	round(t, w)
	if diff := cmp.Diff(confirmation{}, confirmed(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
	if requests := w.api.requests(); len(requests) != 0 {
		t.Errorf("listed %v", requests)
	}
}

// No dependents were listed for an owner that is not in the graph at the time of the round.
// It may be back a moment later.
func TestBarrier_LostOwnerHasNoOutcome(t *testing.T) {
	g := views()
	w := newFixture(t, g, noOwner)
	round(t, w, "a")
	back := waiting("a", "ns", pod)
	g[back.ID] = back
	if diff := cmp.Diff(confirmation{}, confirmed(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
}

// A kind that is not served has no objects, and cluster-scoped objects cannot have a
// namespaced owner.
func TestBarrier_SkipsScopesWithoutDependents(t *testing.T) {
	w := newFixture(t, views(waiting("a", "ns", unknown, node)), noOwner)
	round(t, w, "a")
	if diff := cmp.Diff(confirmation{Confirmed: true}, confirmed(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
	if requests := w.api.requests(); len(requests) != 0 {
		t.Errorf("listed %v", requests)
	}
}

// A stale kind is listed, too. While that fails, the owner is kept.
func TestBarrier_ListsStaleKinds(t *testing.T) {
	w := newFixture(t, views(orphaning("a", "ns", widget)), noOwner)
	lists := discovered()
	stale := catalog.Build(nil, lists[:1], catalog.Settings{
		Local: local, Previous: served(), Failed: map[schema.GroupVersion]error{widget.GroupVersion(): http.ErrServerClosed},
	})
	w.Barrier = gather.NewBarrier(w.Graph, gather.Sources{
		Catalog: func() *catalog.Catalog { return stale }, Absent: nil,
	}, w.api.client(t), noOwner, w.clock.now)
	everythingBut(w, widgets)
	w.api.answer(widgets, body(http.StatusServiceUnavailable, "text/plain", "no endpoints"))
	round(t, w, "a")
	if diff := cmp.Diff(confirmation{Failed: true}, left(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
}

func TestBarrier_PendingSignalsRequests(t *testing.T) {
	w := newFixture(t, views(waiting("a", "ns")), noOwner)
	pending := func() bool {
		select {
		case <-w.Barrier.Pending():
			return true
		default:
			return false
		}
	}
	if pending() {
		t.Error("pending without a request")
	}
	w.Barrier.Request(id("a"))
	w.Barrier.Request(id("a"))
	if !pending() || pending() {
		t.Error("two requests do not make one round")
	}
}

// Facts contain the confirmation only if it is needed: for an owner whose finalizer is about
// to be removed.
func TestGather_IncludesTheBarrierOutcome(t *testing.T) {
	orphans, present := orphaning("orphans", "ns", pod), waiting("stands", "ns", pod)
	present.Object.Terminating = false
	fails := orphaning("fails", "other", widget)
	w := newFixture(t, views(waiting("waits", "ns", pod), fails, orphans, present), noOwner)
	everythingBut(w, "")
	w.api.answer("/apis/example.com/v1/namespaces/other/widgets", body(http.StatusInternalServerError, "text/plain", "oops"))
	round(t, w, "waits", "fails", "orphans", "stands")
	got := map[string]confirmation{}
	for _, uid := range []string{"waits", "fails", "orphans", "stands"} {
		facts, _ := w.Gather(t.Context(), id(uid))
		got[uid] = confirmation{facts.Confirmed, facts.ConfirmError != ""}
	}
	want := map[string]confirmation{"waits": {Confirmed: true}, "fails": {Failed: true}, "orphans": {Confirmed: true}, "stands": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Defects 3.16, 3.17: dependents found by the round are in the graph before the outcome, so
// the next decision counts them.
func TestBarrier_FindsUnwatchedDependents(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newFixture(t, g, g.apply)
	owner := graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner", ResourceVersion: "40", Terminating: true, Orphan: true}
	g.apply(graph.Seen{Object: owner}, graph.Seen{Object: child("old", "ns", reference(configMap))},
		graph.Deleted{Object: child("old", "ns"), At: start})
	w.api.answer(podList, page("", dependent("new", "owner")))
	round(t, w, "owner")
	facts, _ := w.Gather(t.Context(), id("owner"))
	if facts.Dependents != 1 || facts.Confirmed { // when that one is gone, it takes another round
		t.Errorf("confirmed is %t with %d dependents", facts.Confirmed, facts.Dependents)
	}
}

// A list shows a dependent that the watch seems to have skipped: while a type is relisted, its
// objects are delivered in the order of their names, so the newest one says nothing about
// the others. The graph rightly does not accept the read, so the owner must not be
// confirmed.
func TestBarrier_FailsIfTheGraphIgnoresADependent(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newFixture(t, g, g.apply)
	owner := graph.Object{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner", ResourceVersion: "40", Terminating: true, Orphan: true}
	late := child("late", "ns", reference(configMap))
	late.ResourceVersion = "90"
	g.apply(graph.Seen{Object: owner}, graph.Seen{Object: late}, graph.Deleted{Object: late, At: start})
	w.api.answer(podList, page("", dependent("between", "owner"))) // resourceVersion 70
	round(t, w, "owner")
	facts, _ := w.Gather(t.Context(), id("owner"))
	if facts.Confirmed && facts.Dependents == 0 {
		t.Error("an owner is confirmed to have no dependent that the graph does not know, and it has one")
	}
}

// Owners that are deleted one after the other need a round each.
func TestRestAfter_IsInProportionToTheRound(t *testing.T) {
	for round, want := range map[time.Duration]time.Duration{
		0: 0, 5 * time.Millisecond: 20 * time.Millisecond, time.Minute: 250 * time.Millisecond, -time.Second: 0,
	} {
		if got := gather.RestAfter(round); got != want {
			t.Errorf("after a round of %s: got %s, want %s", round, got, want)
		}
	}
}
