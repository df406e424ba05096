package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

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

func resourceOf(name, kind string) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: true,
		Verbs: metav1.Verbs{"delete", "get", "list", "watch"}}
}

// recorder is a Sink that keeps the events.
type recorder struct {
	mu     sync.Mutex
	events []graph.Event
	most   int // events in one call
}

func (r *recorder) Apply(events ...graph.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
	r.most = max(r.most, len(events))
}

// count returns how many events look like this one: a type, and a name.
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

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(8 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain for: %s", what)
		case <-tick.C:
		}
	}
}

// run runs a Watcher against the API until the test ends, and then looks for
// goroutines that it left behind.
func run(t *testing.T, a *api, change func(*Watcher)) (*Watcher, *recorder) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	config := &rest.Config{Host: a.URL, QPS: -1}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := metadata.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	sink := &recorder{}
	w := New(Options{
		Discovery: discovery.NewDiscoveryClientForConfigOrDie(config), Metadata: meta,
		Sink: sink, Log: testr.New(t), Interval: 30 * time.Millisecond,
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

// passes waits until discovery has been asked n times more.
func passes(t *testing.T, a *api, n int) {
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
