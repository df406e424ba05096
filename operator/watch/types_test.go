package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

func TestG14_TypeGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		w, sink := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		eventuallyTrue(t, a, 1)
		for range 3 {
			before := goleak.IgnoreCurrent()
			gone := sink.count("gone Widget")
			a.serve(demo, widgets)
			a.put(widgetResource, object("ns", "one"))
			eventually(t, "sync", func() bool { s, ok := stateOf(w, widgetKind); return ok && s.Synced })
			a.stopServing(demo)
			eventually(t, "the type to go", func() bool { return sink.count("gone Widget") == gone+1 })
			eventually(t, "its watch to end", func() bool { return a.openWatches(widgetResource) == 0 })
			if err := goleak.Find(before, goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
				goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
				goleak.IgnoreAnyFunction("net/http.(*conn).serve")); err != nil {
				t.Error(err)
			}
		}
		events := sink.all()
		if last := describe(events[len(events)-1]); last != "gone Widget" {
			t.Errorf("after the type was gone came %s", last)
		}
		if sink.count("deleted one") != 0 {
			t.Error("a type that is gone proved a deletion")
		}
	})
}

// An API server that has just started serves its own types first, and types defined by others
// a moment later.
func TestG03_ExpectedTypesStayWhenMissingFromDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets)
		var services atomic.Pointer[Services]
		services.Store(&Services{Expected: map[schema.GroupVersion]bool{demo: true}})
		w, sink := run(t, a, func(w *Watcher) {
			w.options.APIServices = func(context.Context) (Services, error) {
				if s := services.Load(); s != nil {
					return *s, nil
				}
				return Services{}, errors.New("the API server is starting")
			}
		})
		eventually(t, "sync", w.Synced)
		for _, claim := range []string{"while the API services name it", "while they can't be read"} {
			a.stopServing(demo)
			failures := w.Failures()
			eventually(t, "discoveries "+claim, func() bool { return w.Failures() > failures+2 })
			if r, ok := w.Catalog().Preferred(widgetKind); !ok || !r.Stale || sink.count("gone Widget") != 0 {
				t.Fatalf("%s: %+v in the catalog (%t), %d events that it is gone", claim, r, ok, sink.count("gone Widget"))
			}
			if absent, err := w.Absent(t.Context(), widgetKind); err == nil || absent {
				t.Errorf("%s, it is absent: %t, %v", claim, absent, err)
			}
			a.serve(demo, widgets)
			eventually(t, "the type again", func() bool { r, _ := w.Catalog().Preferred(widgetKind); return !r.Stale })
			services.Store(nil)
		}
		services.Store(&Services{})
		a.stopServing(demo)
		eventually(t, "the type to go", func() bool { return sink.count("gone Widget") == 1 })
		if absent, err := w.Absent(t.Context(), widgetKind); err != nil || !absent {
			t.Errorf("taken away, it is absent: %t, %v", absent, err)
		}
	})
}

func TestVerifyEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		readOnly := metav1.APIResource{Name: "nodemetrics", Kind: "NodeMetrics", Verbs: metav1.Verbs{"get", "list"}}
		a.serve(demo, readOnly, metav1.APIResource{Name: "nodemetrics/status", Kind: "NodeMetrics", Verbs: widgets.Verbs})
		a.serve(demoNew, readOnly, widgets)
		w, _ := run(t, a, nil)
		if err := w.VerifyEmpty(t.Context(), demo); err != nil {
			t.Errorf("without types that are collected: %v", err)
		}
		if err := w.VerifyEmpty(t.Context(), demoNew); err == nil || !strings.Contains(err.Error(), "widgets.example.com is served, but not watched yet") {
			t.Errorf("with one that is: %v", err)
		}
		a.stopServing(demo)
		if err := w.VerifyEmpty(t.Context(), demo); err == nil {
			t.Error("it is empty without an answer")
		}
	})
}

func TestPreferredVersionChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(demo, widgets)
		a.put(widgetResource, object("ns", "one"))
		w, sink := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		a.stopServing(demo)
		a.serve(demoNew, widgets)
		// Between the two calls nothing is served, which is ignored.
		eventually(t, "the new version", func() bool {
			s, ok := stateOf(w, widgetKind)
			return ok && s.Synced && s.Resource.Version.GroupVersion() == demoNew
		})
		if sink.count("gone Widget") != 0 || sink.count("relisted Widget 1") != 2 {
			t.Errorf("events: %v", sink.all())
		}
		events := sink.all()
		last, ok := events[len(events)-2].(graph.Seen)
		if !ok || last.Object.Kind != demoNew.WithKind("Widget") {
			t.Errorf("seen by the new version: %+v", last)
		}
	})
}

func Test3_14_DefinitionTriggersDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(crds, crd)
		var changes atomic.Int32
		w, sink := run(t, a, func(w *Watcher) {
			w.options.Interval = time.Hour
			w.options.OnChange = func(*catalog.Catalog) { changes.Add(1) }
		})
		eventually(t, "sync", w.Synced)
		time.Sleep(time.Minute)
		if n := a.count("/apis"); n != 3 {
			t.Errorf("%d discoveries, want that of the start, the one that the list of definitions triggers, and its recheck", n)
		}
		afterDebounce := func(event string) {
			t.Helper()
			synctest.Wait()
			time.Sleep(debounce - time.Nanosecond)
			synctest.Wait()
			if sink.count(event) != 0 {
				t.Errorf("%q before no change came for %s", event, debounce)
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if sink.count(event) != 1 {
				t.Errorf("no %q after %s", event, debounce)
			}
		}
		a.serve(demo, widgets)
		a.put(schema.GroupResource{Group: crds.Group, Resource: crd.Name}, object("", "widgets.example.com"))
		afterDebounce("relisted Widget 0")
		time.Sleep(time.Minute)
		a.stopServing(demo)
		a.remove(schema.GroupResource{Group: crds.Group, Resource: crd.Name}, "/widgets.example.com")
		afterDebounce("gone Widget")
		if n := changes.Load(); n != 3 {
			t.Errorf("%d changes, want those of the start, of the new type and of its removal", n)
		}
	})
}

func TestStreamWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.ignoresWatches = true
		a.serve(core, pods)
		a.put(podResource, object("ns", "one"))
		w, sink := run(t, a, func(w *Watcher) { w.stallTimeout = 50 * time.Millisecond })
		eventually(t, "sync by an ordinary list", w.Synced)
		if a.count("stream /api/v1/pods") != 1 || a.count("/api/v1/pods") != 1 || sink.count("seen one") != 1 {
			t.Errorf("events %v", sink.all())
		}
	})
}

func TestRestartOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		w, _ := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		for _, path := range []string{"/api", "/apis", "/api/v1/pods"} {
			a.answer(path, 503)
		}
		a.CloseClientConnections()
		eventually(t, "the error", func() bool { s, _ := stateOf(w, podKind); return s.LastError != "" && s.Synced })
		for _, path := range []string{"/api", "/apis", "/api/v1/pods"} {
			a.answer(path, 0)
		}
		eventually(t, "the watch to be back", func() bool { s, _ := stateOf(w, podKind); return s.LastError == "" })
	})
}

func TestLongList_ComesInBatchesOnceItsTypeIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		for i := range 2*batchSize + 1 {
			a.put(podResource, object("ns", fmt.Sprint(i)))
		}
		w, sink := run(t, a, nil)
		complete := fmt.Sprintf("relisted Pod %d", 2*batchSize+1)
		eventually(t, "sync", w.Synced)
		if len(sink.all()) != 2*batchSize+3 || sink.maxBatch != 1 || sink.count(complete) != 1 {
			t.Errorf("first list: %d events, at most %d at once", len(sink.all()), sink.maxBatch)
		}
		a.dropWatches(podResource, "ns/none")
		eventually(t, "another list", func() bool { return sink.count(complete) == 2 })
		if last := fmt.Sprint("seen ", 2*batchSize); sink.count(last) != 2 || sink.maxBatch != batchSize {
			t.Errorf("both lists: an object seen %d times, at most %d events at once", sink.count(last), sink.maxBatch)
		}
	})
}

// A response that is not about the group, such as one from a proxy, does not show that its kinds are absent.
func TestAbsent_NeedsAResponseAboutTheGroup(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":       `{}`,
		"another kind":  `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`,
		"another group": `{"kind": "APIGroup", "apiVersion": "v1", "name": "other.example.com", "versions": [{"groupVersion": "other.example.com/v1", "version": "v1"}]}`,
		"no versions":   `{"kind": "APIGroup", "apiVersion": "v1", "name": "example.com", "versions": []}`,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/"+widgetKind.Group {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}))
		w := New(Options{Discovery: discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL})})
		if absent, err := w.Absent(t.Context(), widgetKind); err == nil || absent {
			t.Errorf("%s: absent %t, error %v", name, absent, err)
		}
		server.Close()
	}
}
