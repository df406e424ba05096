package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/catalog"
)

func kinds(w *Watcher) []string {
	var found []string
	for _, s := range w.States() {
		found = append(found, s.Resource.Kind)
	}
	return found
}

func TestScenario1_G12_TheWatchesAreThoseOfWhatIsServedFromTheStartOn(t *testing.T) {
	a := newAPI(t)
	a.serve(core, pods)
	a.serve(demo, widgets)
	w, _ := run(t, a, func(w *Watcher) {
		if asked := a.count("/apis"); asked != 0 || len(w.States()) != 0 || w.Synced() {
			t.Errorf("before the start: asked %d times, watching %v", asked, kinds(w))
		}
	})
	watched := func(want ...string) {
		t.Helper()
		eventually(t, fmt.Sprint(want), func() bool { return slices.Equal(want, kinds(w)) && w.Synced() })
	}
	watched("Pod", "Widget")
	a.unserve(demo)
	watched("Pod")
	a.serve(demo, widgets)
	watched("Pod", "Widget")
}

func TestG06_NothingNewChangesNothing(t *testing.T) {
	a := newAPI(t)
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
	passes(t, a, 3)
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
}

func TestG07_WhatComesAndGoesIsToldAndTheRestIsKept(t *testing.T) {
	a := newAPI(t)
	a.serve(core, pods)
	var mu sync.Mutex // covers told
	var told []string
	w, sink := run(t, a, func(w *Watcher) {
		w.options.Log = funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(line, "Types changed") {
				told = append(told, line)
			}
		}, funcr.Options{})
	})
	last := func(part string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(told) != 0 && strings.Contains(told[len(told)-1], part)
		}
	}
	eventually(t, "the first types", last(`"added"=["pods.v1"]`))
	a.serve(demo, widgets)
	eventually(t, "another", last(`"added"=["widgets.example.com.v1"] "removed"=[]`))
	eventually(t, "sync", w.Synced)
	a.unserve(demo)
	eventually(t, "it to go", last(`"added"=[] "removed"=["widgets.example.com.v1"]`))
	if n := sink.count("relisted Pod 0"); n != 1 {
		t.Errorf("pods were listed %d times", n)
	}
}

// A list of groups that is not found is an error that names no group: the types
// in it are out of sight, which proves nothing, and the rest is used.
func TestScenario15_G05_AnErrorThatNamesNoGroup(t *testing.T) {
	a := newAPI(t)
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
}

// Scenario 18: what can't be listed is told, and holds up neither other types nor the next
// look at what is served. What could not be listed all the time it was there goes like
// anything else, and is no error any more.
func TestG09_ATypeThatNeverSyncedGoes(t *testing.T) {
	a := newAPI(t)
	a.serve(core, pods)
	a.serve(demo, widgets)
	a.put(podResource, object("ns", "one"))
	a.answer("/apis/example.com/v1/widgets", 500)
	w, sink := run(t, a, nil)
	eventually(t, "the error", func() bool { s, _ := stateOf(w, widgetKind); return s.LastError != "" })
	eventually(t, "another type", sink.has("seen one"))
	passes(t, a, 2) // it is not waited for
	if w.Synced() {
		t.Error("all is synced, with a type that can't be listed")
	}
	if s, watched := stateOf(w, widgetKind); !watched || s.Synced || s.LastError == "" {
		t.Errorf("what can't be listed is told as %+v, watched: %t", s, watched)
	}
	if s, _ := stateOf(w, podKind); !s.Synced || s.LastError != "" {
		t.Errorf("another type is told as %+v", s)
	}
	a.unserve(demo)
	eventually(t, "it to go", sink.has("gone Widget"))
	eventually(t, "sync", w.Synced)
}

// G-09: what does not come in time is said once, also where nothing fails.
func TestG09_ATypeThatHangsIsLoggedOnce(t *testing.T) {
	a := newAPI(t)
	a.serve(core, pods)
	a.serve(demo, widgets)
	a.answer("/apis/example.com/v1/widgets", hangs)
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
	passes(t, a, 3)
	if n := logged(); n != 1 || !strings.Contains(late[0], "widgets") {
		t.Errorf("said %d times: %v", n, late)
	}
	if s, _ := stateOf(w, podKind); !s.Synced {
		t.Error("another type is not synced")
	}
}

// While a type hangs, and others are watched. That no goroutine is left is
// looked at after each test here; see run.
func TestG15_NothingComesAfterTheEnd(t *testing.T) {
	a := newAPI(t)
	a.serve(core, pods)
	a.serve(demo, widgets)
	a.answer("/apis/example.com/v1/widgets", 500)
	config := &rest.Config{Host: a.URL, QPS: -1}
	sink := &recorder{}
	w := New(Options{
		Discovery: discovery.NewDiscoveryClientForConfigOrDie(config), Metadata: metadata.NewForConfigOrDie(config),
		Sink: sink, Interval: 30 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	eventually(t, "the watch", func() bool { return a.openWatches(podResource) == 1 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	events, asked := len(sink.all()), a.count("/apis")
	a.put(podResource, object("ns", "late"))
	eventually(t, "the watch to be closed", func() bool { return a.openWatches(podResource) == 0 })
	if sink.count("gone Pod") != 0 {
		t.Error("the end was taken for the end of a type")
	}
	if now := sink.all(); len(now) != events || a.count("/apis") != asked {
		t.Errorf("after the end: %v", now[events:])
	}
	if len(w.States()) != 0 {
		t.Errorf("still watching %v", kinds(w))
	}
}
