package watch

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// receiving returns a store that receives the first list of its type, what it has passed on,
// and the list's watch, which has a buffer.
func receiving() (*store, *recorder, *apiwatch.FakeWatcher) {
	s, sink := testStore()
	s.initial.possible = true
	return s, sink, apiwatch.NewFakeWithChanSize(20, false)
}

func endOfList() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "9", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
}

func described(r *recorder) []string {
	var got []string
	for _, e := range r.all() {
		got = append(got, describe(e))
	}
	return got
}

func TestInitialList_IsPassedOnWhileReceived(t *testing.T) {
	s, sink, w := receiving()
	waiting := object("ns", "waiting")
	now := metav1.Now()
	waiting.DeletionTimestamp, waiting.Finalizers = &now, []string{"example.com/other"}
	w.Add(object("ns", "a"))
	w.Add(object("ns", "b"))
	w.Action(apiwatch.Bookmark, &metav1.PartialObjectMetadata{}) // an ordinary one
	w.Add(&metav1.PartialObjectMetadata{})                       // without a UID
	w.Delete(object("ns", "a"))
	w.Modify(waiting)
	w.Action(apiwatch.Bookmark, endOfList())
	w.Add(object("ns", "later"))

	rest := s.receive(t.Context(), w)
	want := []string{"listing Pod", "seen a", "seen b", "deleted a", "seen waiting"}
	if diff := cmp.Diff(want, described(sink)); diff != "" {
		t.Error(diff)
	}
	events := sink.all()
	if first := events[0].(graph.Listing); !first.Streamed || first.ResourceVersion != "" {
		t.Errorf("%+v", first)
	}
	if events[4].(graph.Seen).Metadata != waiting {
		t.Error("the metadata of an object that waits for a finalizer is missing")
	}
	if e := <-rest.ResultChan(); !isEndOfList(e) {
		t.Errorf("the reflector gets %+v first, want the end of the list", e)
	}
	if e := <-rest.ResultChan(); e.Object.(*metav1.PartialObjectMetadata).Name != "later" {
		t.Errorf("then it gets %+v", e)
	}
	if err := s.Replace(nil, "9"); err != nil {
		t.Fatal(err)
	}
	relisted := sink.all()[5].(graph.Relisted)
	listed := map[graph.ID]struct{}{graph.IDOf("uid-b"): {}, graph.IDOf("uid-waiting"): {}}
	if diff := cmp.Diff(graph.Relisted{Kind: podKind, ResourceVersion: "9", Listed: listed}, relisted); diff != "" {
		t.Error(diff)
	}
}

// What was passed on by an attempt that fails may be outdated: the next list is only passed on
// when its resourceVersion is known.
func TestInitialList_IsNotPassedOnInASecondAttempt(t *testing.T) {
	for name, fail := range map[string]func(*apiwatch.FakeWatcher, context.CancelFunc){
		"the watch ends":            func(w *apiwatch.FakeWatcher, _ context.CancelFunc) { w.Stop() },
		"the API server sends that": func(w *apiwatch.FakeWatcher, _ context.CancelFunc) { w.Error(&metav1.Status{Code: 410}) },
		"the type is removed":       func(_ *apiwatch.FakeWatcher, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			s, sink, w := receiving()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			received := make(chan apiwatch.Interface)
			go func() { received <- s.receive(ctx, w) }()
			w.Add(object("ns", "a"))
			fail(w, cancel)
			<-received
			if s.receive(t.Context(), w) != apiwatch.Interface(w) {
				t.Error("a second attempt is passed on")
			}
			before := len(sink.all())
			if err := s.Replace([]any{object("ns", "b")}, "9"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"listing Pod", "seen b", "relisted Pod 1"}, described(sink)[before:]); diff != "" {
				t.Error(diff)
			}
			if second := sink.all()[before].(graph.Listing); second.Streamed || second.ResourceVersion != "9" {
				t.Errorf("%+v", second)
			}
		})
	}
}

// Objects of a type that continues in another version are known.
func TestInitialList_IsNotPassedOnInANewVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(demo, widgets)
		a.put(widgetResource, object("ns", "w"))
		w, sink := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		a.stopServing(demo)
		a.serve(demoNew, widgets)
		eventually(t, "the list in the new version", func() bool { return sink.count("relisted Widget 1") == 2 })
		var streamed []bool
		for _, e := range sink.all() {
			if l, ok := e.(graph.Listing); ok {
				streamed = append(streamed, l.Streamed)
			}
		}
		if diff := cmp.Diff([]bool{true, false}, streamed); diff != "" {
			t.Errorf("lists that are passed on while received:\n%s", diff)
		}
	})
}

// The graph is the same whether the first list is passed on as it is received or as a whole.
func TestInitialList_MakesTheSameGraph(t *testing.T) {
	streamed, whole := graph.New(), graph.New()
	for g, possible := range map[*graph.Graph]bool{streamed: true, whole: false} {
		s, _, w := receiving()
		s.sink, s.initial.possible = &lockedGraph{graph: g}, possible
		var list []any
		for i, name := range []string{"a", "b", "c"} {
			o := object("ns", name)
			o.ResourceVersion = []string{"7", "3", "5"}[i]
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: types.UID("uid-a")}}
			w.Add(o)
			list = append(list, o)
		}
		w.Action(apiwatch.Bookmark, endOfList())
		s.receive(t.Context(), w)
		if possible {
			list = nil
		}
		if err := s.Replace(list, "9"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(whole.Dump(), streamed.Dump()); diff != "" {
		t.Error(diff)
	}
	for _, version := range []string{"8", "9", "10"} {
		read := graph.Read{Object: graph.Object{UID: "uid-d", Kind: core.WithKind("Pod"), Namespace: "ns", Name: "d", ResourceVersion: version}}
		whole.Apply(read, nil)
		streamed.Apply(read, nil)
		if is, want := streamed.Has("uid-d"), whole.Has("uid-d"); is != want {
			t.Errorf("a read at %s: accepted %v, want %v", version, is, want)
		}
	}
}

// The reflector keeps all pages of an ordinary list until the last has been read.
func TestPruned_KeepsWhatTheGraphUses(t *testing.T) {
	o := object("ns", "a")
	o.Annotations[objectstate.Annotation] = "{}"
	o.Finalizers = []string{"foregroundDeletion"}
	before := graph.ObjectOf(core.WithKind("Pod"), o.DeepCopy())
	list := pruned(&metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{*o, *object("ns", "b")}})
	kept := &list.Items[0]
	if diff := cmp.Diff(before, graph.ObjectOf(core.WithKind("Pod"), kept)); diff != "" || !before.HasState {
		t.Error(diff)
	}
	if diff := cmp.Diff(o.Labels, kept.Labels); diff != "" {
		t.Errorf("labels, which selectors need: %s", diff)
	}
	if len(kept.Annotations) != 1 || kept.ManagedFields != nil || list.Items[1].Annotations != nil {
		t.Errorf("more is kept: %+v", list.Items)
	}
}
