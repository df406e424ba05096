package watch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

func testStore() (*store, *recorder) {
	sink := &recorder{}
	m := &monitor{log: logr.Discard(), stream: &stream{}}
	return &store{sink: sink, kind: core.WithKind("Pod"), monitor: m}, sink
}

func TestG13_TransformerKeepsOnlyTheGraphObject(t *testing.T) {
	now := metav1.Now()
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: "u", ResourceVersion: "7", Namespace: "ns", Name: "a",
		OwnerReferences:   []metav1.OwnerReference{{Name: "o", UID: "v"}},
		Finalizers:        []string{"foregroundDeletion"},
		DeletionTimestamp: &now,
		Labels:            map[string]string{"a": "b"},
	}}
	s, sink := testStore()
	kept, err := s.Transformer()(o)
	if err != nil {
		t.Fatal(err)
	}
	if kept == any(o) {
		t.Error("the whole object is kept")
	}
	if key, err := cache.MetaNamespaceKeyFunc(kept); key != "ns/a" || err != nil {
		t.Errorf("the key is %q, %v; want ns/a", key, err)
	}
	if err := errors.Join(s.Replace([]any{o}, "9"), s.Replace([]any{kept}, "9")); err != nil {
		t.Fatal(err)
	}
	events := sink.all()
	if diff := cmp.Diff(events[:3], events[3:]); diff != "" {
		t.Errorf("of the object (-), and of what was kept (+):\n%s", diff)
	}
	if got, err := s.Transformer()("else"); got != "else" || err != nil {
		t.Errorf("something else became %v, %v", got, err)
	}
}

func TestStore_IgnoresTombstones(t *testing.T) {
	s, sink := testStore()
	whole, nameless := object("ns", "whole"), object("ns", "nameless")
	nameless.UID = ""
	for _, err := range []error{
		s.Delete(cache.DeletedFinalStateUnknown{Key: "ns/whole", Obj: whole}),
		s.Delete(nameless), s.Add(nameless), s.Update(nameless), s.Resync(),
		s.Replace([]any{nameless, whole, "else"}, "9"),
		s.Delete(whole),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	var got []string
	for _, e := range sink.all() {
		got = append(got, describe(e))
	}
	if diff := cmp.Diff([]string{"listing Pod", "seen whole", "relisted Pod 1", "deleted whole"}, got); diff != "" {
		t.Error(diff)
	}
	relisted := sink.all()[2].(graph.Relisted)
	if _, ok := relisted.Listed[graph.IDOf(whole.UID)]; !ok || relisted.ResourceVersion != "9" {
		t.Errorf("relisted: %+v", relisted)
	}
}

func TestSchedule(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	due := func(s *schedule, want time.Duration) {
		t.Helper()
		if got := s.due().Sub(start); got != want {
			t.Errorf("due after %v, want %v", got, want)
		}
	}
	s := &schedule{interval: 30 * time.Second}
	s.ran(start, true)
	due(s, 30*time.Second)

	s.trigger(at(time.Second))
	due(s, time.Second+debounce)
	s.trigger(at(1200 * time.Millisecond))
	due(s, 1200*time.Millisecond+debounce)
	for d := 1300 * time.Millisecond; d < 3*time.Second; d += 100 * time.Millisecond {
		s.trigger(at(d))
	}
	due(s, time.Second+maxDebounce) // regardless of further changes
	s.ran(at(3*time.Second), true)
	due(s, 2900*time.Millisecond+recheckDelay)
	s.ran(at(2900*time.Millisecond+recheckDelay), true)
	due(s, 2900*time.Millisecond+recheckDelay+30*time.Second)

	s = &schedule{interval: 3 * time.Second}
	for _, want := range []time.Duration{1, 2, 3, 3} {
		s.ran(start, false)
		due(s, want*time.Second)
	}
	s.ran(start, true)
	s.ran(start, false)
	due(s, time.Second)
}

func TestServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(demo, widgets)
		w, _ := run(t, a, func(w *Watcher) { w.options.Interval = time.Hour })
		eventually(t, "sync", w.Synced)
		gadgets := schema.GroupVersion{Group: "gone.example.com", Version: "v1"}.WithResource("gadgets")
		before := a.count("/apis/example.com/v1")
		for range 3 {
			if ok, err := w.Serves(t.Context(), demo.WithResource("widgets")); !ok || err != nil {
				t.Errorf("widgets: %v, %v", ok, err)
			}
			if ok, err := w.Serves(t.Context(), demo.WithResource("others")); ok || err != nil {
				t.Errorf("others: %v, %v", ok, err)
			}
			if ok, err := w.Serves(t.Context(), gadgets); ok || err != nil {
				t.Errorf("of a group that isn't there: %v, %v", ok, err)
			}
		}
		if requests := a.count("/apis/example.com/v1") - before; requests != 1 {
			t.Errorf("%d requests at the same time, want one that they share", requests)
		}
		a.answer("/apis/example.com/v1", 503)
		time.Sleep(responseTTL)
		if ok, err := w.Serves(t.Context(), demo.WithResource("widgets")); !ok || err != nil {
			t.Errorf("from a response that has not expired: %v, %v", ok, err)
		}
		time.Sleep(time.Nanosecond)
		if ok, err := w.Serves(t.Context(), demo.WithResource("widgets")); ok || err == nil {
			t.Errorf("after the response has expired: %v, %v", ok, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Serves(ctx, demo.WithResource("widgets")); err == nil {
			t.Error("no error from a request that was given up")
		}
	})
}

func TestReadServices(t *testing.T) {
	service := func(group, version, managed string, ref *apiregistration.ServiceReference) *apiregistration.APIService {
		s := &apiregistration.APIService{Spec: apiregistration.APIServiceSpec{Group: group, Version: version, Service: ref}}
		s.Name, s.Labels = version+"."+group, map[string]string{automanaged: managed}
		return s
	}
	client := fake.NewClientset(
		service("", "v1", "onstart", nil),
		service("gone.k8s.io", "v1beta1", "onstart", nil), // of an earlier release: it is never removed
		service("example.com", "v1", "true", nil),
		service("metrics.k8s.io", "v1beta1", "", &apiregistration.ServiceReference{Name: "metrics"}),
	)
	got, err := ReadServices(client)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Services{
		Local:    map[schema.GroupVersion]bool{core: true, {Group: "gone.k8s.io", Version: "v1beta1"}: true, demo: true, apiregistration.SchemeGroupVersion: true},
		Expected: map[schema.GroupVersion]bool{demo: true, {Group: "metrics.k8s.io", Version: "v1beta1"}: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	client.PrependReactor("list", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	if _, err := ReadServices(client)(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestListing_IncomparableForNonLocalTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets)
		responses := make(chan error, 1)
		responses <- nil
		w, _ := run(t, a, func(w *Watcher) {
			w.options.APIServices = func(context.Context) (Services, error) {
				local := Services{Local: map[schema.GroupVersion]bool{core: true}}
				select {
				case err := <-responses:
					return local, err
				default:
					return local, errors.New("forbidden")
				}
			}
		})
		local := func(gk schema.GroupKind) bool { r, _ := w.Catalog().Preferred(gk); return r.Local }
		eventually(t, "a catalog", func() bool { return len(w.Catalog().Collected()) == 2 })
		eventually(t, "nothing to be local once that can't be told", func() bool { return !local(podKind) })
		if local(widgetKind) {
			t.Error("an aggregated type is local")
		}
		eventually(t, "sync all the same", w.Synced)
	})
}

func TestStream_StallsOnlyWhileOpen(t *testing.T) {
	s, w := &stream{timeout: time.Millisecond}, apiwatch.NewFake()
	s.start(w)
	<-w.ResultChan() // stopped
	if !s.stalled() || s.end() {
		t.Error("a stream without an end was not given up")
	}

	s = &stream{timeout: time.Hour}
	s.start(apiwatch.NewFake())
	if !s.end() || s.end() || s.stalled() {
		t.Error("a stream that is over is still looked after")
	}
}

func TestStoppableClock(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := stoppableClock{ctx: ctx}
	<-c.After(time.Millisecond)
	long := c.After(time.Hour)
	cancel()
	<-long
}

// Only what a consumer of events may need in a moment comes with all its metadata.
func TestUpdate_AddsMetadataOfWhatIsAboutToBeReleased(t *testing.T) {
	now := metav1.Now()
	state := map[string]string{objectstate.Annotation: "{}"}
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"waits for another finalizer": {metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"example.com/x"}}, true},
		"has a hold and a state":      {metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{graph.Hold}, Annotations: state}, true},
		"has a hold":                  {metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{graph.Hold}}, false},
		"has a state":                 {metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: []string{"orphan"}, Annotations: state}, false},
		"is not being deleted":        {metav1.ObjectMeta{Finalizers: []string{graph.Hold}, Annotations: state}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.meta.UID, c.meta.Name, c.meta.ResourceVersion = "u", "a", "7"
			s, sink := testStore()
			if err := s.Update(&metav1.PartialObjectMetadata{ObjectMeta: c.meta}); err != nil {
				t.Fatal(err)
			}
			seen, ok := sink.all()[0].(graph.Seen)
			if !ok || (seen.Metadata != nil) != c.want || c.want && seen.Metadata.ResourceVersion != "7" {
				t.Errorf("metadata: %v; want some: %t", seen.Metadata, c.want)
			}
		})
	}
}
