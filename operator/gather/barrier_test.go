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

// waiting is the view of an owner that waits for dependents of these kinds.
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

// everythingBut answers the lists of all types in the namespace, but one, with
// nothing.
func everythingBut(w *world, path string) {
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

// orphaning is an owner that leaves its dependents behind.
func orphaning(uid, namespace string, kinds ...schema.GroupVersionKind) graph.View {
	v := waiting(uid, namespace, kinds...)
	v.Object.Foreground, v.Object.Orphan = false, true
	return v
}

func views(vs ...graph.View) told {
	g := told{}
	for _, v := range vs {
		g[v.ID] = v
	}
	return g
}

// dependent is a listed object that names owners by UID.
func dependent(name string, owners ...string) *metav1.PartialObjectMetadata {
	o := meta("ns", name, name)
	for _, uid := range owners {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: uid, UID: types.UID(uid)})
	}
	return o
}

// confirmation is what Outcome says.
type confirmation struct {
	Confirmed bool
	Failed    bool
}

func confirmed(b *gather.Barrier, uid string) confirmation { return outcomeFor(b, uid, false) }

// left is confirmed for an owner that orphans.
func left(b *gather.Barrier, uid string) confirmation { return outcomeFor(b, uid, true) }

func outcomeFor(b *gather.Barrier, uid string, orphans bool) confirmation {
	ok, failure := b.Outcome(id(uid), orphans)
	return confirmation{ok, failure != ""}
}

func round(t *testing.T, w *world, uids ...string) {
	t.Helper()
	var want []graph.ID
	for _, uid := range uids {
		w.Barrier.Ask(id(uid))
		want = append(want, id(uid))
	}
	got := w.Barrier.Round(t.Context())
	byID := cmpopts.SortSlices(func(a, b graph.ID) bool { return a.String() < b.String() })
	if diff := cmp.Diff(want, got, byID, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("owners of the round: %s", diff)
	}
}

// Owners that wait share the lists: one for each kind and namespace.
func TestARoundListsEveryPlaceOnce(t *testing.T) {
	w := newWorld(t, views(
		waiting("a", "ns", pod, widget), waiting("b", "ns", pod), waiting("c", "other", pod), waiting("d", "ns"),
		waiting("e", "", node, pod),
	), nobody)
	for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", podList, "/api/v1/namespaces/other/pods", "/apis/example.com/v1/namespaces/ns/widgets"} {
		w.api.answer(path, page(""))
	}
	round(t, w, "a", "b", "c", "d", "e")
	got := w.api.asks()
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

// Everything else in a list is the watch's to tell.
func TestARoundHandsOnOnlyDependentsOfTheAsked(t *testing.T) {
	w := newWorld(t, views(waiting("a", "ns", pod), waiting("b", "ns", pod), waiting("c", "ns", pod)), nobody)
	mine, both, others, none := dependent("mine", "a"), dependent("both", "c", "b"), dependent("others", "c"), dependent("none")
	w.api.answer(podList, page("", mine, both, others, none))
	round(t, w, "a", "b")
	want := []graph.Event{read(pod, mine), read(pod, both)}
	if diff := cmp.Diff(want, *w.learnt); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(confirmation{}, confirmed(w.Barrier, "c")); diff != "" {
		t.Errorf("c was not asked about: %s", diff)
	}
}

func TestARoundFollowsThePagesOfAList(t *testing.T) {
	w := newWorld(t, views(waiting("a", "ns", pod)), nobody)
	first, second := dependent("first", "a"), dependent("second", "a")
	w.api.answer(podList, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("continue") == "" {
			page("more", first)(rw, r)
			return
		}
		page("", second)(rw, r)
	})
	round(t, w, "a")
	if diff := cmp.Diff([]graph.Event{read(pod, first), read(pod, second)}, *w.learnt); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{podList + "?limit=500", podList + "?continue=more&limit=500"}, w.api.asks()); diff != "" {
		t.Errorf("listed: %s", diff)
	}
}

// A list that fails, on whichever page, confirms none of the orphaning owners
// that it was for; it says nothing of the others. Bad news is told once, so
// that the next look asks again. An owner that waits for its dependents is not
// held (G-63).
func TestAFailedListHoldsItsOwners(t *testing.T) {
	expired := body(http.StatusGone, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	for name, answer := range map[string]http.HandlerFunc{
		"500":                        body(http.StatusInternalServerError, "text/plain", "oops"),
		"403":                        body(http.StatusForbidden, "text/plain", "no"),
		"404 from a proxy":           body(http.StatusNotFound, "text/html", "404"),
		"404, the type is not there": bare(),
		"a page for a login":         body(http.StatusOK, "text/html", "<h1>please log in</h1>"),
		"one object for a list":      found(meta("ns", "x", "x")),
		"the connection is cut":      cut,
		"the second page has expired": func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("continue") == "" {
				page("more")(rw, r)
				return
			}
			expired(rw, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, views(orphaning("a", "ns", pod, widget), orphaning("b", "ns", widget), orphaning("c", "other", pod), waiting("d", "ns", pod)), nobody)
			everythingBut(w, podList)
			w.api.answer(podList, answer)
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
				t.Errorf("asked a second time: %s", diff)
			}
		})
	}
}

// Good news is kept for half a minute from when its round began, and used once.
func TestAConfirmationExpires(t *testing.T) {
	w := newWorld(t, views(waiting("a", "ns", pod)), nobody)
	list := page("")
	w.api.answer(podList, func(rw http.ResponseWriter, r *http.Request) {
		w.clock.pass(time.Second)
		list(rw, r)
	})
	for after, want := range map[time.Duration]confirmation{
		29 * time.Second:                 {Confirmed: true},
		29*time.Second + time.Nanosecond: {},
	} {
		round(t, w, "a")
		w.clock.pass(after)
		if diff := cmp.Diff(want, confirmed(w.Barrier, "a")); diff != "" {
			t.Errorf("after %s: %s", after, diff)
		}
		if diff := cmp.Diff(confirmation{}, confirmed(w.Barrier, "a")); diff != "" {
			t.Errorf("a second time: %s", diff)
		}
	}
}

// 3.7, 3.17: before an orphaning owner goes, all types are listed, whether any
// of their objects is known to depend on such owners or not.
func TestAnOrphaningOwnerIsLookedForEverywhere(t *testing.T) {
	w := newWorld(t, views(orphaning("a", "ns", pod)), nobody)
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

// The catalog may lack a type for a moment. That is asked for anew before an
// orphaning owner goes.
func TestAnOrphaningOwnerWaitsForATypeThatIsServedAfterAll(t *testing.T) {
	w := newWorld(t, views(orphaning("a", "ns", unknown)), nobody)
	everythingBut(w, "")
	for _, absent := range []bool{false, true} {
		w.absent = absent
		round(t, w, "a")
		if diff := cmp.Diff(confirmation{Failed: !absent, Confirmed: absent}, left(w.Barrier, "a")); diff != "" {
			t.Errorf("absent is %t: %s", absent, diff)
		}
	}
}

func TestNobodyIsConfirmedUnasked(t *testing.T) {
	w := newWorld(t, views(waiting("a", "ns", pod)), nobody)
	round(t, w)
	if diff := cmp.Diff(confirmation{}, confirmed(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
	if asked := w.api.asks(); len(asked) != 0 {
		t.Errorf("listed %v", asked)
	}
}

// An owner that the graph has lost by the time of the round was looked for
// nowhere. It may be back a moment later.
func TestAnOwnerThatIsLostIsNotConfirmed(t *testing.T) {
	g := views()
	w := newWorld(t, g, nobody)
	round(t, w, "a")
	back := waiting("a", "ns", pod)
	g[back.ID] = back
	if diff := cmp.Diff(confirmation{}, confirmed(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
}

// A kind that is not served has no objects to list, and a cluster-scoped kind
// none whose owner is in a namespace.
func TestARoundSkipsWhatCanHaveNoDependents(t *testing.T) {
	w := newWorld(t, views(waiting("a", "ns", unknown, node)), nobody)
	round(t, w, "a")
	if diff := cmp.Diff(confirmation{Confirmed: true}, confirmed(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
	if asked := w.api.asks(); len(asked) != 0 {
		t.Errorf("listed %v", asked)
	}
}

// A kind of which nobody knows whether it is served is listed all the same:
// while that fails the owner is held.
func TestAStaleKindIsListed(t *testing.T) {
	w := newWorld(t, views(orphaning("a", "ns", widget)), nobody)
	lists := discovered()
	stale := catalog.Build(nil, lists[:1], catalog.Settings{
		Local: local, Previous: served(), Failed: map[schema.GroupVersion]error{widget.GroupVersion(): http.ErrServerClosed},
	})
	w.Barrier = gather.NewBarrier(w.Graph, gather.Sources{
		Catalog: func() *catalog.Catalog { return stale }, Absent: nil,
	}, w.api.client(t), nobody, w.clock.now)
	everythingBut(w, widgets)
	w.api.answer(widgets, body(http.StatusServiceUnavailable, "text/plain", "no endpoints"))
	round(t, w, "a")
	if diff := cmp.Diff(confirmation{Failed: true}, left(w.Barrier, "a")); diff != "" {
		t.Error(diff)
	}
}

func TestAskedTellsThatThereIsSomethingToDo(t *testing.T) {
	w := newWorld(t, views(waiting("a", "ns")), nobody)
	pending := func() bool {
		select {
		case <-w.Barrier.Asked():
			return true
		default:
			return false
		}
	}
	if pending() {
		t.Error("there is something to do before anybody asked")
	}
	w.Barrier.Ask(id("a"))
	w.Barrier.Ask(id("a"))
	if !pending() || pending() {
		t.Error("two questions don't make one round")
	}
}

// Facts tell of the confirmation only where it is asked for: of an owner that
// is about to go.
func TestFactsTellWhatTheBarrierFound(t *testing.T) {
	orphans, stands := orphaning("orphans", "ns", pod), waiting("stands", "ns", pod)
	stands.Object.Terminating = false
	fails := orphaning("fails", "other", widget)
	w := newWorld(t, views(waiting("waits", "ns", pod), fails, orphans, stands), nobody)
	everythingBut(w, "")
	w.api.answer("/apis/example.com/v1/namespaces/other/widgets", body(http.StatusInternalServerError, "text/plain", "oops"))
	round(t, w, "waits", "fails", "orphans", "stands")
	got := map[string]confirmation{}
	for _, uid := range []string{"waits", "fails", "orphans", "stands"} {
		facts, _ := w.Gather(t.Context(), id(uid))
		got[uid] = confirmation{facts.Confirmed, facts.Unconfirmed != ""}
	}
	want := map[string]confirmation{"waits": {Confirmed: true}, "fails": {Failed: true}, "orphans": {Confirmed: true}, "stands": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Defects 3.16, 3.17: what the round finds is in the graph before the owner is
// told, and so is counted by the next look.
func TestADependentThatTheWatchHasNotShownIsFound(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newWorld(t, g, g.apply)
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

// A list shows a dependent that the watch has passed over, as it seems: while
// a type is listed anew, its objects come in the order of their names, so the
// newest of them says nothing of the others. The graph is right not to take
// the read for news; to say that nothing is unknown would be wrong.
func TestADependentThatTheGraphDoesNotTakeInIsNotConfirmedAway(t *testing.T) {
	g := &locked{g: graph.New()}
	w := newWorld(t, g, g.apply)
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
