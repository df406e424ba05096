package cascadelog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gleaner-dev/gleaner/operator/cascadelog"
	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// api is an API server with events and a ConfigMap.
type api struct {
	t      *testing.T
	client client.WithWatch

	mu      sync.Mutex // covers what follows
	events  map[string]*corev1.Event
	records []string
	writes  int
	fails   error // of writing events
}

func newAPI(t *testing.T) *api {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &api{t: t, client: fake.NewClientBuilder().WithScheme(scheme).Build(), events: map[string]*corev1.Event{}}
}

func (a *api) create(_ context.Context, e *corev1.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes++
	key := e.Namespace + "/" + e.Name
	switch {
	case a.fails != nil:
		return a.fails
	case a.events[key] != nil:
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, e.Name)
	}
	a.events[key] = e
	return nil
}

func (a *api) expectEvents(want ...string) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var got []string
	for _, e := range a.events {
		got = append(got, fmt.Sprintf("%s %s/%s: %s", e.Reason, e.Namespace, e.InvolvedObject.Name, e.Message))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		a.t.Errorf("events (-want +got):\n%s", diff)
	}
	recorded := slices.Sorted(slices.Values(a.records))
	if diff := cmp.Diff(want, recorded); diff != "" {
		a.t.Errorf("records (-want +got):\n%s", diff)
	}
}

// replica is a process that follows cascades.
type replica struct {
	*cascadelog.Log
	graph    *graphstore.Store
	leading  bool
	observed int
	end      func()
}

func (a *api) start(leading bool) *replica {
	a.t.Helper()
	r := &replica{graph: graphstore.New(time.Now), leading: leading}
	r.Log = cascadelog.New(cascadelog.Options{
		Graph: r.graph, Client: a.client, Event: a.create, Namespace: "gleaner-system", Leading: func() bool { a.mu.Lock(); defer a.mu.Unlock(); return r.leading },
		Ignore:  func(o graph.Object) bool { return o.Name == "canary" },
		Left:    func(c completion.Cascade) string { return fmt.Sprint(c.Owners) },
		Observe: func(completion.Cascade, time.Duration) { a.mu.Lock(); defer a.mu.Unlock(); r.observed++ },
		Record: func(root record.Object, reason decide.Reason, message string, _ time.Time) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.records = append(a.records, string(reason)+" "+root.Namespace+"/"+root.Name+": "+message)
		},
		Now: time.Now, Log: logr.Discard(),
	})
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			a.t.Error(err)
		}
	})
	a.t.Cleanup(r.end)
	time.Sleep(300 * time.Millisecond) // what happens in the test is between two checks
	return r
}

func (r *replica) apply(e graph.Event) {
	r.Apply(e)
	r.graph.Apply(e)
}

func object(name string, owners ...string) graph.Object {
	o := graph.Object{UID: types.UID(name), Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: "shop", Name: name, ResourceVersion: "1"}
	for _, owner := range owners {
		o.Owners = append(o.Owners, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID(owner)})
	}
	return o
}

// begin deletes an owner with two dependents.
func (r *replica) begin() {
	for _, o := range []graph.Object{object("root"), object("a", "root"), object("b", "root")} {
		r.apply(graph.Seen{Object: o})
	}
	r.apply(graph.Deleted{Object: object("root")})
}

func (r *replica) remove(name string) { r.apply(graph.Deleted{Object: object(name, "root")}) }

func TestLog_WritesOneEventWhenACascadeHasCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		r, follower := a.start(true), a.start(false)
		for _, each := range []*replica{r, follower} {
			each.begin()
			each.remove("a")
		}
		time.Sleep(3 * time.Second)
		a.expectEvents()
		r.remove("b")
		follower.remove("b")
		time.Sleep(10 * time.Second)
		a.expectEvents("CascadeCompleted shop/root: cascade completed in 3.4s: 2 deleted, 0 kept")
		if r.observed != 1 || follower.observed != 0 || a.writes != 1 {
			t.Errorf("observed %d and %d times, written %d times", r.observed, follower.observed, a.writes)
		}
		if inProgress, completed := r.Cascades(); len(inProgress) != 0 || len(completed) != 1 {
			t.Errorf("%d in progress, %d completed", len(inProgress), len(completed))
		}
	})
}

func TestLog_ACascadeSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		r := a.start(true)
		r.begin()
		r.remove("a")
		time.Sleep(10 * time.Second)
		r.end()
		for range 3 { // whether it was still in progress or not
			r = a.start(true)
			r.apply(graph.Seen{Object: object("b", "root")})
			time.Sleep(2 * time.Second)
			r.remove("b")
			time.Sleep(2 * time.Second)
			r.end()
			a.expectEvents("CascadeCompleted shop/root: cascade completed in 13s: 2 deleted, 0 kept")
		}
	})
}

func TestLog_AFollowerReportsWhatTheLeaderHasNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		r := a.start(false)
		r.begin()
		r.remove("a")
		r.remove("b")
		time.Sleep(30 * time.Second)
		a.expectEvents()
		a.mu.Lock()
		r.leading = true
		a.mu.Unlock()
		time.Sleep(2 * time.Second)
		a.expectEvents("CascadeCompleted shop/root: cascade completed in 700ms: 2 deleted, 0 kept")
	})
}

func TestLog_WritesOneEventWhenACascadeMakesNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		r := a.start(true)
		r.begin()
		time.Sleep(time.Hour)
		a.expectEvents("CascadeStalled shop/root: cascade makes no progress: 0 deleted, 0 kept; left: [root]")
		r.remove("a")
		r.remove("b")
		time.Sleep(2 * time.Second)
		a.expectEvents("CascadeCompleted shop/root: cascade completed in 1h0m0.7s: 2 deleted, 0 kept", "CascadeStalled shop/root: cascade makes no progress: 0 deleted, 0 kept; left: [root]")
	})
}

func TestLog_TriesAgainToWriteAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.fails = errors.New("connection refused")
		r := a.start(true)
		r.begin()
		r.remove("a")
		r.remove("b")
		time.Sleep(2500 * time.Millisecond)
		a.mu.Lock()
		a.fails = nil
		a.mu.Unlock()
		time.Sleep(time.Second)
		a.expectEvents("CascadeCompleted shop/root: cascade completed in 700ms: 2 deleted, 0 kept")
	})
}

// What one namespace has to report does not delay the others, and is bounded.
func TestLog_NamespacesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		r := a.start(true)
		complete := func(namespace string, i int) {
			root := object(fmt.Sprint(namespace, "-root-", i))
			leaf := object(fmt.Sprint(namespace, "-leaf-", i), root.Name)
			root.Namespace, leaf.Namespace = namespace, namespace
			r.apply(graph.Seen{Object: root})
			r.apply(graph.Seen{Object: leaf})
			r.apply(graph.Deleted{Object: root})
			r.apply(graph.Deleted{Object: leaf})
		}
		for i := range 1000 {
			complete("busy", i)
		}
		time.Sleep(time.Second)
		for i := range 500 { // the first ones are still to be written
			complete("busy", 1000+i)
		}
		complete("other", 0)
		time.Sleep(2 * time.Second)
		written := func(namespace string) (n int) {
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, e := range a.events {
				if e.Namespace == namespace {
					n++
				}
			}
			return n
		}
		if written("other") != 1 || written("busy") > 60 {
			t.Errorf("%d and %d events", written("other"), written("busy"))
		}
		time.Sleep(5 * time.Minute)
		_, unreported := r.Counts()
		if n := written("busy"); n+unreported != 1500 || n < 1000 {
			t.Errorf("%d events, %d not reported", n, unreported)
		}
	})
}

// What could not be written before the process ended is written by the next one.
func TestLog_ReportsSurviveAnOutageAndARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.fails = errors.New("connection refused")
		r := a.start(true)
		r.begin()
		r.remove("a")
		r.remove("b")
		time.Sleep(2 * time.Minute)
		r.end()
		a.start(true)
		time.Sleep(2 * time.Minute)
		a.expectEvents()
		a.mu.Lock()
		a.fails = nil
		a.mu.Unlock()
		time.Sleep(10 * time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.events) != 1 {
			t.Errorf("%d events", len(a.events))
		}
	})
}

func TestLog_StoresAtMostWhatAConfigMapHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		r := a.start(true)
		for i := range 5000 {
			root := object(fmt.Sprint("root-", i, strings.Repeat("x", 100)))
			r.apply(graph.Seen{Object: root})
			r.apply(graph.Seen{Object: object(fmt.Sprint("leaf-", i), root.Name)})
			r.apply(graph.Deleted{Object: root})
		}
		time.Sleep(10 * time.Second)
		var stored corev1.ConfigMap
		if err := a.client.Get(t.Context(), types.NamespacedName{Namespace: "gleaner-system", Name: cascadelog.ConfigMap}, &stored); err != nil {
			t.Fatal(err)
		}
		if n := len(stored.Data[cascadelog.Key]); n == 0 || n > 1<<20 {
			t.Errorf("%d bytes", n)
		}
	})
}
