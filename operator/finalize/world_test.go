package finalize

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
)

const entry = "example.com/f"

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// module answers requests, and keeps them.
type module struct {
	mu       sync.Mutex // covers what follows
	say      func(hostabi.Request) (hostabi.Verdict, error)
	requests []hostabi.Request
}

func (m *module) Name() string { return "module" }

func (m *module) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	answer, err := m.Ask(ctx, r)
	return answer.Verdict, err
}

func (m *module) Ask(_ context.Context, r hostabi.Request) (policies.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, r)
	v, err := m.say(r)
	return policies.Answer{Verdict: v}, err
}

// says has the module say something from now on.
func (m *module) says(v hostabi.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.say = func(hostabi.Request) (hostabi.Verdict, error) { return v, nil }
}

// fails has the module be at fault from now on.
func (m *module) fails(message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.say = func(hostabi.Request) (hostabi.Verdict, error) { return hostabi.Verdict{}, fmt.Errorf("%s", message) }
}

// asked returns the requests since the last call.
func (m *module) asked() []hostabi.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := m.requests
	m.requests = nil
	return requests
}

var (
	isDone = hostabi.Verdict{Decision: hostabi.DecisionDone}
	waits  = hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(time.Hour)}
	gaveUp = hostabi.Verdict{Decision: hostabi.DecisionFail, Reason: "nobody can help it"}
)

// effects carries out intents by what it is told to do.
type effects func(hostabi.Intent) hostabi.Result

func (e effects) Do(_ context.Context, _ intents.Behalf, i hostabi.Intent) hostabi.Result {
	return e(i)
}

// world is a server of one finalizer with a clock of its own. Nobody looks at anything
// unless a test visits it.
type world struct {
	*testing.T
	api    *api
	module *module
	server *server
	runner *Runner

	mu    sync.Mutex // covers what follows
	at    time.Time
	leads bool
	types *catalog.Catalog
	notes []Note
	does  effects

	keys   statekey.Keys
	noKeys error
}

func newWorld(t *testing.T, change ...func(*policies.Finalizer)) *world {
	w := &world{T: t, api: newAPI(t), module: &module{}, at: start, leads: true, types: typesOf("configmaps", "secrets", "roles"), keys: testKeys}
	w.module.says(isDone)
	client, err := metadata.NewForConfig(w.api.config())
	if err != nil {
		t.Fatal(err)
	}
	w.runner = New(Options{
		Finalizers: func() ([]*policies.Finalizer, bool) { return nil, true },
		Catalog:    func() *catalog.Catalog { w.mu.Lock(); defer w.mu.Unlock(); return w.types },
		Reader:     consult.NewLive(w.api.config()), Client: client,
		Intents: effects(func(i hostabi.Intent) hostabi.Result { return w.does(i) }),
		Leads:   func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.leads },
		Note:    func(n Note) { w.mu.Lock(); defer w.mu.Unlock(); w.notes = append(w.notes, n) },
		Keys:    func() (statekey.Keys, error) { w.mu.Lock(); defer w.mu.Unlock(); return w.keys, w.noKeys },
		Changed: func() {}, Interval: time.Hour, Now: w.now, Log: logr.Discard(),
	})
	w.api.create(object("Namespace", "", "ns"))
	w.api.create(object("Namespace", "", "other"))
	w.restart(w.finalizer(change...))
	return w
}

// finalizer is one that serves ConfigMaps of all namespaces.
func (w *world) finalizer(change ...func(*policies.Finalizer)) *policies.Finalizer {
	f := &policies.Finalizer{
		Policy: &policies.Policy{
			Kind: "ClusterFinalizer", Name: "f", Generation: 1, Enforce: true, Asker: w.module,
			Rules: []policies.Rule{{Groups: []string{"*"}, Resources: []string{"configmaps", "roles"}}},
		},
		UID: "f", Entry: entry, RetryInitial: time.Second, RetryMax: 10 * time.Second,
	}
	for _, c := range change {
		c(f)
	}
	return f
}

// restart has a process serve the finalizer that knows nothing yet.
func (w *world) restart(f *policies.Finalizer) {
	if w.server != nil {
		w.server.queue.ShutDown()
	}
	w.server = newServer(w.runner, served{Finalizer: f})
	w.runner.servers = map[types.UID]*server{f.UID: w.server}
	w.runner.index()
	w.Cleanup(w.server.queue.ShutDown)
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(d)
}

// visit looks at an object, which is being waited for if it is being deleted.
func (w *world) visit(o *unstructured.Unstructured) time.Duration {
	k := keyOf(graph.ObjectOf(o.GroupVersionKind(), o))
	if o.GetDeletionTimestamp() != nil {
		w.server.tracked(k)
	}
	return w.server.visit(w.Context(), k)
}

// told returns the last note since the last call.
func (w *world) told() Note {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.notes) == 0 {
		return Note{}
	}
	last := w.notes[len(w.notes)-1]
	w.notes = nil
	return last
}

// object is a new one.
func object(kind, namespace, name string, finalizers ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("v1")
	if kind == "Role" {
		o.SetAPIVersion("rbac.authorization.k8s.io/v1")
	}
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetFinalizers(finalizers)
	return o
}

// deleted makes an object that has been deleted at the start.
func (w *world) deleted(kind string, finalizers ...string) *unstructured.Unstructured {
	o := object(kind, "ns", "o", finalizers...)
	o.SetDeletionTimestamp(&metav1.Time{Time: start})
	return w.api.create(o)
}

// waiting makes a ConfigMap that waits for the finalizer.
func (w *world) waiting() *unstructured.Unstructured { return w.deleted("ConfigMap", entry) }

func label(name string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{name: ""}) }
}

// is fails the test if the object was not let go, or kept, for a reason.
func (w *world) is(want Reason, message string) {
	w.Helper()
	if n := w.told(); n.Reason != want || !strings.Contains(n.Message, message) {
		w.Fatalf("told %q: %s; want %s: %s", n.Reason, n.Message, want, message)
	}
}

// keeps fails the test unless the object has the finalizer still.
func (w *world) keeps(o *unstructured.Unstructured) {
	w.Helper()
	if live := w.api.get(o); live == nil || !slices.Contains(live.GetFinalizers(), entry) {
		w.Fatalf("it was let go: %v", live)
	}
}

// after fails the test unless the next look is after so long.
func (w *world) after(got, want time.Duration) {
	w.Helper()
	if got != want {
		w.Fatalf("looked at again after %s, want %s", got, want)
	}
}

func typesOf(names ...string) *catalog.Catalog {
	verbs := metav1.Verbs{"delete", "get", "list", "patch", "watch"}
	core := &metav1.APIResourceList{GroupVersion: "v1"}
	rbac := &metav1.APIResourceList{GroupVersion: "rbac.authorization.k8s.io/v1"}
	for kind, name := range resources {
		list := core
		if kind == "Role" {
			list = rbac
		}
		if slices.Contains(names, name) {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: kind, Namespaced: true, Verbs: verbs})
		}
	}
	return catalog.Build(nil, []*metav1.APIResourceList{core, rbac}, catalog.Settings{})
}
