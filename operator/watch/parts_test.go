package watch

import (
	"context"
	"errors"
	"testing"
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
)

func testStore() (*store, *recorder) {
	sink := &recorder{}
	m := &monitor{log: logr.Discard(), stream: &stream{}}
	return &store{sink: sink, kind: core.WithKind("Pod"), monitor: m}, sink
}

func TestG13_TheTransformerKeepsJustWhatBecomesOfAnObjectInTheEnd(t *testing.T) {
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

func TestStoreBelievesOnlyObjects(t *testing.T) {
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

	s.poke(at(time.Second))
	due(s, time.Second+quiet)
	s.poke(at(1200 * time.Millisecond))
	due(s, 1200*time.Millisecond+quiet)
	for d := 1300 * time.Millisecond; d < 3*time.Second; d += 100 * time.Millisecond {
		s.poke(at(d))
	}
	due(s, time.Second+patience) // however long it goes on
	s.ran(at(3*time.Second), true)
	due(s, 2900*time.Millisecond+afterthought)
	s.ran(at(2900*time.Millisecond+afterthought), true)
	due(s, 2900*time.Millisecond+afterthought+30*time.Second)

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
	a := newAPI(t)
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
	if asked := a.count("/apis/example.com/v1") - before; asked < 1 || asked > 2 {
		t.Errorf("asked %d times", asked)
	}
	a.answer("/apis/example.com/v1", 503)
	eventually(t, "an error once the answer is old", func() bool {
		ok, err := w.Serves(t.Context(), demo.WithResource("widgets"))
		return !ok && err != nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Serves(ctx, demo.WithResource("widgets")); err == nil {
		t.Error("no error from a request that was given up")
	}
}

func TestAPIServicesTellWhatIsLocalAndWhatHasToBeServed(t *testing.T) {
	service := func(group, version, managed string, ref *apiregistration.ServiceReference) *apiregistration.APIService {
		s := &apiregistration.APIService{Spec: apiregistration.APIServiceSpec{Group: group, Version: version, Service: ref}}
		s.Name, s.Labels = version+"."+group, map[string]string{automanaged: managed}
		return s
	}
	client := fake.NewClientset(
		service("", "v1", "onstart", nil),
		service("gone.k8s.io", "v1beta1", "onstart", nil), // of a release before: nobody takes it away
		service("example.com", "v1", "true", nil),
		service("metrics.k8s.io", "v1beta1", "", &apiregistration.ServiceReference{Name: "metrics"}),
	)
	got, err := ReadServices(client)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Services{
		Local:    map[schema.GroupVersion]bool{core: true, {Group: "gone.k8s.io", Version: "v1beta1"}: true, demo: true, apiregistration.SchemeGroupVersion: true},
		Promised: map[schema.GroupVersion]bool{demo: true, {Group: "metrics.k8s.io", Version: "v1beta1"}: true},
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

func TestLocalIsTold(t *testing.T) {
	a := newAPI(t)
	a.serve(core, pods)
	a.serve(demo, widgets)
	answers := make(chan error, 1)
	answers <- nil
	w, _ := run(t, a, func(w *Watcher) {
		w.options.APIServices = func(context.Context) (Services, error) {
			local := Services{Local: map[schema.GroupVersion]bool{core: true}}
			select {
			case err := <-answers:
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
}

func TestStreamIsGivenUpOnlyWhileItLasts(t *testing.T) {
	s, w := &stream{after: time.Millisecond}, apiwatch.NewFake()
	s.opened(w)
	<-w.ResultChan() // stopped
	if !s.stalled() || s.over() {
		t.Error("a stream without an end was not given up")
	}

	s = &stream{after: time.Hour}
	s.opened(apiwatch.NewFake())
	if !s.over() || s.over() || s.stalled() {
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
