package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/operator/catalog"
)

func kinds(w *Watcher) []string {
	var found []string
	for _, s := range w.States() {
		found = append(found, s.Resource.Kind)
	}
	return found
}

func TestScenario1_G12_WatchesMatchServedTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets)
		w, _ := run(t, a, func(w *Watcher) {
			if requests := a.count("/apis"); requests != 0 || len(w.States()) != 0 || w.Synced() {
				t.Errorf("before Run: %d requests, watching %v", requests, kinds(w))
			}
		})
		watched := func(want ...string) {
			t.Helper()
			eventually(t, fmt.Sprint(want), func() bool { return slices.Equal(want, kinds(w)) && w.Synced() })
		}
		watched("Pod", "Widget")
		a.stopServing(demo)
		watched("Pod")
		a.serve(demo, widgets)
		watched("Pod", "Widget")
	})
}

func TestG06_EqualDiscoveryChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		var mu sync.Mutex // covers changes
		changes := 0
		w, sink := run(t, a, func(w *Watcher) {
			w.options.OnChange = func(*catalog.Catalog) {
				mu.Lock()
				defer mu.Unlock()
				changes++
			}
		})
		eventually(t, "sync", w.Synced)
		before := w.States()
		events := len(sink.all())
		eventuallyTrue(t, a, 3)
		mu.Lock()
		defer mu.Unlock()
		if changes != 1 {
			t.Errorf("%d changes", changes)
		}
		if diff := cmp.Diff(before, w.States()); diff != "" {
			t.Error(diff)
		}
		if now := sink.all(); len(now) != events {
			t.Errorf("events: %v", now)
		}
	})
}

func TestG07_AddedAndRemovedTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		var mu sync.Mutex // covers told
		var catalogs []string
		w, sink := run(t, a, func(w *Watcher) {
			w.options.Log = funcr.New(func(_, line string) {
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(line, "Types changed") {
					catalogs = append(catalogs, line)
				}
			}, funcr.Options{})
		})
		last := func(part string) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(catalogs) != 0 && strings.Contains(catalogs[len(catalogs)-1], part)
			}
		}
		eventually(t, "the first types", last(`"added"=["pods.v1"]`))
		a.serve(demo, widgets)
		eventually(t, "another", last(`"added"=["widgets.example.com.v1"] "removed"=[]`))
		eventually(t, "sync", w.Synced)
		a.stopServing(demo)
		eventually(t, "it to go", last(`"added"=[] "removed"=["widgets.example.com.v1"]`))
		if n := sink.count("relisted Pod 0"); n != 1 {
			t.Errorf("pods were listed %d times", n)
		}
	})
}

// A 404 for a list of groups is an error without a group: its types are no longer seen, which
// proves nothing, and the rest is used.
func TestScenario15_G05_ErrorWithoutGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets)
		a.put(podResource, object("ns", "one"))
		w, sink := run(t, a, nil)
		eventually(t, "sync", w.Synced)
		a.answer("/api", 404)
		eventually(t, "the unread ones to go", sink.has("gone Pod"))
		a.put(widgetResource, object("ns", "late"))
		eventually(t, "an event of the others", sink.has("seen late"))
		if sink.count("gone Widget") != 0 || sink.count("deleted one") != 0 {
			t.Errorf("events: %v", sink.all())
		}
		a.answer("/api", 0)
		eventually(t, "them to be back", func() bool { return sink.count("seen one") == 2 && w.Synced() })
	})
}

// Scenario 18: a type that cannot be listed is reported, and delays neither other types nor the
// next discovery. A type that could never be listed is removed like
// any other, and its error disappears.
func TestG09_UnsyncedTypeIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets)
		a.put(podResource, object("ns", "one"))
		a.answer("/apis/example.com/v1/widgets", 500)
		w, sink := run(t, a, nil)
		eventually(t, "the error", func() bool { s, _ := stateOf(w, widgetKind); return s.LastError != "" })
		eventually(t, "another type", sink.has("seen one"))
		eventuallyTrue(t, a, 2) // it is not waited for
		if w.Synced() {
			t.Error("all is synced, with a type that can't be listed")
		}
		if s, watched := stateOf(w, widgetKind); !watched || s.Synced || s.LastError == "" {
			t.Errorf("the type that cannot be listed has %+v, watched: %t", s, watched)
		}
		if s, _ := stateOf(w, podKind); !s.Synced || s.LastError != "" {
			t.Errorf("another type has %+v", s)
		}
		a.stopServing(demo)
		eventually(t, "it to go", sink.has("gone Widget"))
		eventually(t, "sync", w.Synced)
	})
}

// G-09: a type that does not sync in time is logged once, even without failures.
func TestG09_HangingTypeIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets)
		a.answer("/apis/example.com/v1/widgets", hangTimeout)
		var mu sync.Mutex // covers late
		var late []string
		w, _ := run(t, a, func(w *Watcher) {
			w.options.Log = funcr.New(func(_, line string) {
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(line, "has not synced yet") {
					late = append(late, line)
				}
			}, funcr.Options{})
		})
		logged := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(late)
		}
		eventually(t, "the line", func() bool { return logged() != 0 })
		eventuallyTrue(t, a, 3)
		if n := logged(); n != 1 || !strings.Contains(late[0], "widgets") {
			t.Errorf("logged %d times: %v", n, late)
		}
		if s, _ := stateOf(w, podKind); !s.Synced {
			t.Error("another type is not synced")
		}
	})
}

// While a type hangs and others are watched. Every test checks that no goroutine is left; see
// run.
func TestG15_NoEventsAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.serve(core, pods)
		a.serve(demo, widgets)
		a.answer("/apis/example.com/v1/widgets", 500)
		types, objects, client := a.clients(t)
		defer client.CloseIdleConnections()
		sink := &recorder{}
		w := New(Options{
			Discovery: types, Metadata: objects, Sink: sink, Interval: 30 * time.Millisecond,
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		eventually(t, "the watch", func() bool { return a.openWatches(podResource) == 1 })
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		events := len(sink.all())
		synctest.Wait()
		requests := a.count("/apis")
		if n := a.openWatches(podResource); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		a.put(podResource, object("ns", "late"))
		time.Sleep(time.Minute)
		if sink.count("gone Pod") != 0 {
			t.Error("the end was taken for the end of a type")
		}
		if now := sink.all(); len(now) != events || a.count("/apis") != requests {
			t.Errorf("after the end: %v", now[events:])
		}
		if len(w.States()) != 0 {
			t.Errorf("still watching %v", kinds(w))
		}
	})
}
