package watch

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

func TestEventsOfObjects(t *testing.T) {
	for _, mode := range []string{"streamed", "listed"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.noStream = mode == "listed"
				a.serve(core, pods)
				a.put(podResource, object("ns", "first"))
				w, sink := run(t, a, nil)
				eventually(t, "sync", w.Synced)
				if sink.count("seen first") != 1 || sink.count("relisted Pod 1") != 1 {
					t.Errorf("events after sync: %v", sink.all())
				}
				eventually(t, "the watch", func() bool { return a.openWatches(podResource) == 1 })
				a.put(podResource, object("ns", "second"))
				eventually(t, "second to be seen", sink.has("seen second"))
				removed := time.Now()
				a.remove(podResource, "ns/second")
				eventually(t, "second to be deleted", sink.has("deleted second"))

				if listed := a.count("/api/v1/pods"); (listed != 0) != a.noStream {
					t.Errorf("pods were listed %d times", listed)
				}
				for _, e := range sink.all() {
					if d, ok := e.(graph.Deleted); ok && (!d.At.Equal(removed) || d.Object.Kind != core.WithKind("Pod")) {
						t.Errorf("deleted: %+v", d)
					}
				}
			})
		})
	}
}

func TestRelistProvesNoDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.put(podResource, object("ns", "stays"))
		a.put(podResource, object("ns", "lost"))
		w, sink := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		a.dropWatches(podResource, "ns/lost")
		eventually(t, "the second list", sink.has("relisted Pod 1"))
		if sink.count("deleted lost") != 0 || sink.count("seen stays") != 2 {
			t.Errorf("events: %v", sink.all())
		}
		if s, _ := stateOf(w, podKind); !s.Synced || s.LastError != "" {
			t.Errorf("state: %+v", s)
		}
	})
}

// Between the end of a watch and the next one the storage can be restored.
func TestWatch_InterruptedComesBeforeTheNextEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.put(podResource, object("ns", "first"))
		w, sink := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		eventually(t, "the watch", func() bool { return a.openWatches(podResource) == 1 })
		if sink.count("interrupted Pod") != 0 {
			t.Errorf("events while the watch lasts: %v", sink.all())
		}
		a.dropWatches(podResource, "ns/first")
		eventually(t, "the second list", sink.has("relisted Pod 0"))
		var order []string
		for _, e := range sink.all() {
			if text := describe(e); text == "interrupted Pod" || text == "listing Pod" {
				order = append(order, text)
			}
		}
		if want := []string{"listing Pod", "interrupted Pod", "listing Pod"}; !slices.Equal(slices.Compact(order), want) {
			t.Errorf("got %v, want %v", order, want)
		}
	})
}

// Scenario 17: total failure.
func TestG03_EmptyDiscoveryChangesNothing(t *testing.T) {
	for _, code := range []int{0, 500, 404} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.serve(core, pods)
				w, sink := run(t, a, nil)
				eventually(t, "sync", w.Synced)
				before := w.Catalog()
				if code == 0 {
					a.stopServing(core)
				} else {
					a.answer("/api", code)
					a.answer("/apis", code)
				}
				eventually(t, "a failure", func() bool { return w.Failures() > 1 })
				if w.Catalog() != before || !w.Synced() || sink.count("gone Pod") != 0 {
					t.Error("an empty answer changed something")
				}
			})
		})
	}
}

// Scenarios 16 and 18.
func TestG04_PartialFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets, resourceOf("gadgets", "Gadget"))
		a.answer("/apis/example.com/v1/gadgets", 503) // so that it never syncs
		w, sink := run(t, a, nil)
		eventually(t, "sync of two", func() bool { return len(w.States()) == 3 && len(w.Unsynced()) == 1 })

		a.answer("/apis/example.com/v1", 503)
		eventually(t, "the one that never synced to go", sink.has("gone Gadget"))
		if s, ok := stateOf(w, widgetKind); !ok || !s.Synced || !s.Resource.Stale {
			t.Errorf("the synced one of the failed group: %+v, %v", s, ok)
		}
		if sink.count("gone Widget") != 0 || w.Failures() == 0 {
			t.Errorf("events %v, failures %d", sink.all(), w.Failures())
		}
		if w.Catalog().Serves(demo.WithResource("widgets")) {
			t.Error("a failed group counts as served")
		}
		if r, ok := w.Catalog().Preferred(widgetKind); !ok || !r.Stale {
			t.Errorf("Preferred(Widget) = %+v, %v", r, ok)
		}
		// Other types are still added and removed, and the kept watch still delivers.
		a.serve(core, secrets)
		eventually(t, "a new type", sink.has("relisted Secret 0"))
		a.put(widgetResource, object("ns", "late"))
		eventually(t, "an event of the failed group", sink.has("seen late"))

		a.answer("/apis/example.com/v1/gadgets", 0)
		a.answer("/apis/example.com/v1", 0)
		eventually(t, "all to be well", func() bool { return len(w.States()) == 4 && w.Synced() })
		if sink.count("relisted Widget 0") != 1 {
			t.Error("the kept watch was begun anew")
		}
	})
}

func TestG05_RemainingTypesAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets)
		w, sink := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		a.stopServing(demo)
		eventually(t, "the type to go", sink.has("gone Widget"))
		if _, ok := stateOf(w, podKind); !ok {
			t.Error("the other types were removed, too")
		}
	})
}

// Scenario 18.
func Test3_8_G08_TypesAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods, secrets)
		a.serve(demo, widgets)
		a.answer("/apis/example.com/v1/widgets", 500)
		w, sink := run(t, a, nil)
		eventually(t, "the others to sync", func() bool { return len(w.States()) == 3 && len(w.Unsynced()) == 1 })
		eventually(t, "the error", func() bool { s, _ := stateOf(w, widgetKind); return s.LastError != "" })
		if w.Synced() {
			t.Error("all are synced, with one failing")
		}
		a.answer("/apis/example.com/v1/widgets", 0)
		eventually(t, "all to sync", w.Synced)
		eventually(t, "the error to go", func() bool { s, _ := stateOf(w, widgetKind); return s.LastError == "" })
		if sink.count("relisted Widget 0") != 1 {
			t.Errorf("events: %v", sink.all())
		}
	})
}

func TestLogs_OnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.noStream = true
		a.serve(core, pods)
		a.answer("watch /api/v1/pods", 403)
		var fails, works atomic.Int32
		w, _ := run(t, a, func(w *Watcher) {
			w.options.Log = funcr.New(func(_, line string) {
				switch {
				case strings.Contains(line, "Watch failed, retrying"):
					fails.Add(1)
				case strings.Contains(line, "Watch recovered"):
					works.Add(1)
				}
			}, funcr.Options{})
		})
		eventually(t, "several attempts", func() bool { return a.count("watch /api/v1/pods") > 2 })
		if s, _ := stateOf(w, podKind); s.LastError == "" || !s.Synced {
			t.Errorf("listed but not watched: %+v", s)
		}
		if fails.Load() != 1 || works.Load() != 0 {
			t.Errorf("logged %d failures and %d recoveries of one failure that lasts", fails.Load(), works.Load())
		}
		a.answer("watch /api/v1/pods", 0)
		eventually(t, "the watch", func() bool { return works.Load() == 1 })
		if s, _ := stateOf(w, podKind); s.LastError != "" {
			t.Errorf("watched: %+v", s)
		}
	})
}

func TestG10_EventsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods, resourceOf("events", "Event"))
		a.serve(schema.GroupVersion{Group: "events.k8s.io", Version: "v1"}, resourceOf("events", "Event"))
		w, _ := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		eventuallyTrue(t, a, 2)
		if states := w.States(); len(states) != 1 || states[0].Resource.Kind != "Pod" {
			t.Errorf("watched: %+v", states)
		}
	})
}

func TestG11_NotSyncedBeforeDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		w, _ := run(t, a, nil)
		if w.Catalog() == nil || w.Synced() {
			t.Error("nothing found yet, and synced")
		}
		eventually(t, "a failure", func() bool { return w.Failures() > 0 })
		if w.Synced() {
			t.Error("nothing found, and synced")
		}
		a.serve(core, pods)
		eventually(t, "sync", w.Synced)
	})
}
