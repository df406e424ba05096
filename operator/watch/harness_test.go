package watch

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

var (
	core    = schema.GroupVersion{Version: "v1"}
	demo    = schema.GroupVersion{Group: "example.com", Version: "v1"}
	demoNew = schema.GroupVersion{Group: "example.com", Version: "v2"}
	crds    = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}

	pods    = resourceOf("pods", "Pod")
	secrets = resourceOf("secrets", "Secret")
	widgets = resourceOf("widgets", "Widget")
	crd     = resourceOf("customresourcedefinitions", "CustomResourceDefinition")

	podResource    = schema.GroupResource{Resource: "pods"}
	widgetResource = schema.GroupResource{Group: "example.com", Resource: "widgets"}
	widgetKind     = schema.GroupKind{Group: "example.com", Kind: "Widget"}
	podKind        = schema.GroupKind{Kind: "Pod"}
)

// TestMain removes client-go's limit on the rate of errors, whose clock is not that of a
// synctest bubble: it would sleep until the bubble reaches the present.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // the one that logs
	os.Exit(m.Run())
}

func resourceOf(name, kind string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: true,
		Verbs: metav1.Verbs{"delete", "get", "list", "watch"}}
}

// recorder is a Sink that records events.
type recorder struct {
	mu       sync.Mutex
	events   []graph.Event
	maxBatch int // events in one call
}

func (r *recorder) Apply(events ...graph.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
	r.maxBatch = max(r.maxBatch, len(events))
}

// count returns the number of events with this type and name.
func (r *recorder) count(like string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if describe(e) == like {
			n++
		}
	}
	return n
}

// all returns the events so far.
func (r *recorder) all() []graph.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func (r *recorder) has(like string) func() bool {
	return func() bool { return r.count(like) > 0 }
}

func describe(e graph.Event) string {
	switch e := e.(type) {
	case graph.Seen:
		return "seen " + e.Object.Name
	case graph.Deleted:
		return "deleted " + e.Object.Name
	case graph.Listing:
		return "listing " + e.Kind.Kind
	case graph.Relisted:
		return fmt.Sprintf("relisted %s %d", e.Kind.Kind, len(e.Listed))
	case graph.TypeGone:
		return "gone " + e.Kind.Kind
	case graph.Interrupted:
		return "interrupted " + e.Kind.Kind
	}
	return fmt.Sprintf("%T", e)
}

// eventually waits until a condition holds, for a minute of the clock of the test's synctest
// bubble. It looks only while nothing is in progress.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		synctest.Wait()
		if holds() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

// run runs a Watcher against the API until the test ends, and then checks for leaked
// goroutines. The test runs in a synctest bubble, so that it depends on no clock.
func run(t *testing.T, a *apiServer, change func(*Watcher)) (*Watcher, *recorder) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	types, objects, client := a.clients(t)
	sink := &recorder{}
	w := New(Options{
		Discovery: types, Metadata: objects, Sink: sink,
		Log: testr.New(t), Interval: 30 * time.Millisecond,
	})
	if change != nil {
		change(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		client.CloseIdleConnections()
		a.CloseClientConnections()
		goleak.VerifyNone(t, before)
	})
	return w, sink
}

// eventuallyTrue waits for n more discoveries.
func eventuallyTrue(t *testing.T, a *apiServer, n int) {
	t.Helper()
	from := a.count("/apis")
	eventually(t, "more discoveries", func() bool { return a.count("/apis") >= from+n })
}

func stateOf(w *Watcher, gk schema.GroupKind) (State, bool) {
	states := w.States()
	i := slices.IndexFunc(states, func(s State) bool { return s.Resource.GroupKind() == gk })
	if i < 0 {
		return State{}, false
	}
	return states[i], true
}
