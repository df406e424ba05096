package finalizers

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
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

const entry = "example.com/f"

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fakeModule returns configured verdicts, and stores the requests.
type fakeModule struct {
	mu       sync.Mutex // protects the fields below
	respond  func(hostabi.Request) (hostabi.Verdict, error)
	requests []hostabi.Request
}

func (m *fakeModule) Name() string { return "module" }

func (m *fakeModule) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	evaluation, err := m.EvaluateMetered(ctx, r)
	return evaluation.Verdict, err
}

func (m *fakeModule) EvaluateMetered(_ context.Context, r hostabi.Request) (policies.Evaluation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, r)
	v, err := m.respond(r)
	return policies.Evaluation{Verdict: v}, err
}

// returns sets the module's verdict.
func (m *fakeModule) returns(v hostabi.Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.respond = func(hostabi.Request) (hostabi.Verdict, error) { return v, nil }
}

// fails makes evaluations of the module fail.
func (m *fakeModule) fails(message string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.respond = func(hostabi.Request) (hostabi.Verdict, error) { return hostabi.Verdict{}, fmt.Errorf("%s", message) }
}

// takeRequests returns the requests since the last call.
func (m *fakeModule) takeRequests() []hostabi.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	requests := m.requests
	m.requests = nil
	return requests
}

var (
	doneVerdict = hostabi.Verdict{Decision: hostabi.DecisionDone}
	waitVerdict = hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(time.Hour)}
	failVerdict = hostabi.Verdict{Decision: hostabi.DecisionFail, Reason: "nobody can help it"}
)

// fakeIntents carries out intents by a function.
type fakeIntents func(hostabi.Intent) hostabi.Result

func (e fakeIntents) Do(_ context.Context, _ intents.Identity, i hostabi.Intent) hostabi.Result {
	return e(i)
}

// A testEnv is a controller of one finalizer with a fake clock. Objects are only reconciled by
// calls of reconcile.
type testEnv struct {
	*testing.T
	api        *fakeAPI
	module     *fakeModule
	controller *controller
	runner     *Runner

	gate gate.Gate

	mu       sync.Mutex // protects the fields below
	clock    time.Time
	types    *catalog.Catalog
	outcomes []Outcome
	execute  fakeIntents

	granted bool                       // deletions
	watched map[types.UID]graph.Object // what watches have shown
	settled []writer.Settlement        // of deletions

	admit  func(writer.Write) writer.Admission // nil: each write passes
	writes []string                            // that were to be made

	keys    statekey.Keys
	keysErr error
}

func newTestEnv(t *testing.T, change ...func(*policies.Finalizer)) *testEnv {
	w := &testEnv{T: t, api: newFakeAPI(t), module: &fakeModule{}, clock: start, types: typesOf("configmaps", "secrets", "roles"), keys: testKeys}
	w.module.returns(doneVerdict)
	w.gate.Lead()
	client, err := metadata.NewForConfig(w.api.config())
	if err != nil {
		t.Fatal(err)
	}
	w.runner = New(Options{
		Finalizers: func() ([]*policies.Finalizer, bool) { return nil, true },
		Catalog:    func() *catalog.Catalog { w.mu.Lock(); defer w.mu.Unlock(); return w.types },
		Reader:     modulecall.NewLiveReader(w.api.config()), Client: client,
		Intents:   fakeIntents(func(i hostabi.Intent) hostabi.Result { return w.execute(i) }),
		MayDelete: func(intents.Identity, hostabi.DeleteIntent) bool { return w.granted },
		Lookup:    func(uid types.UID) (graph.Object, bool) { o, ok := w.watched[uid]; return o, ok },
		Gate:      &w.gate, Steps: []writer.Step{w},
		Record:          func(n Outcome) { w.mu.Lock(); defer w.mu.Unlock(); w.outcomes = append(w.outcomes, n) },
		Keys:            func() (statekey.Keys, error) { w.mu.Lock(); defer w.mu.Unlock(); return w.keys, w.keysErr },
		ProgressChanged: func() {}, Interval: time.Hour, Now: w.now, Log: logr.Discard(),
	})
	w.api.create(newObject("Namespace", "", "ns"))
	w.api.create(newObject("Namespace", "", "other"))
	w.restart(w.finalizer(change...))
	return w
}

// Admit implements writer.Step.
func (w *testEnv) Admit(_ context.Context, write writer.Write) (writer.Admission, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, fmt.Sprintf("%s: %s %s %s", write.Origin, write.Effect, write.Target.Kind.Kind, write.Target.Name))
	if w.admit == nil {
		return writer.Admission{Outcome: writer.Pass}, nil
	}
	return w.admit(write), nil
}

// Settle implements writer.Step.
func (w *testEnv) Settle(_ context.Context, write writer.Write, end writer.Settlement) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if write.Effect == writer.Deletes {
		w.settled = append(w.settled, end)
	}
}

// finalizer returns a finalizer for ConfigMaps and Roles in all namespaces.
func (w *testEnv) finalizer(change ...func(*policies.Finalizer)) *policies.Finalizer {
	f := &policies.Finalizer{
		Policy: &policies.Policy{
			Kind: "ClusterFinalizer", Name: "f", Generation: 1, Enforce: true, Evaluator: w.module,
			Rules: []policies.Rule{{Groups: []string{"*"}, Resources: []string{"configmaps", "roles"}}},
		},
		UID: "f", Entry: entry, RetryInitial: time.Second, RetryMax: 10 * time.Second,
	}
	for _, c := range change {
		c(f)
	}
	return f
}

// restart simulates a restart of the operator.
func (w *testEnv) restart(f *policies.Finalizer) {
	if w.controller != nil {
		w.controller.queue.ShutDown()
	}
	w.controller = newController(w.runner, activeFinalizer{Finalizer: f})
	w.runner.controllers = map[types.UID]*controller{f.UID: w.controller}
	w.runner.buildIndex()
	w.Cleanup(w.controller.queue.ShutDown)
}

func (w *testEnv) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *testEnv) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(d)
}

// reconcile reconciles an object, and tracks it if it is being deleted.
func (w *testEnv) reconcile(o *unstructured.Unstructured) time.Duration {
	k := keyOf(graph.ObjectOf(o.GroupVersionKind(), o))
	if o.GetDeletionTimestamp() != nil {
		w.controller.ensurePending(k)
	}
	return w.controller.reconcile(w.Context(), k)
}

// lastOutcome returns the last Note since the last call.
func (w *testEnv) lastOutcome() Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.outcomes) == 0 {
		return Outcome{}
	}
	last := w.outcomes[len(w.outcomes)-1]
	w.outcomes = nil
	return last
}

// newObject returns a new object.
func newObject(kind, namespace, name string, finalizers ...string) *unstructured.Unstructured {
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

// createDeleted creates an object that was deleted at start.
func (w *testEnv) createDeleted(kind string, finalizers ...string) *unstructured.Unstructured {
	o := newObject(kind, "ns", "o", finalizers...)
	o.SetDeletionTimestamp(&metav1.Time{Time: start})
	return w.api.create(o)
}

// createPending creates a ConfigMap that waits for the finalizer.
func (w *testEnv) createPending() *unstructured.Unstructured {
	return w.createDeleted("ConfigMap", entry)
}

func label(name string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{name: ""}) }
}

// wantOutcome asserts the reason and message of the last Note.
func (w *testEnv) wantOutcome(want Reason, message string) {
	w.Helper()
	if n := w.lastOutcome(); n.Reason != want || !strings.Contains(n.Message, message) {
		w.Fatalf("outcome %q: %s; want %s: %s", n.Reason, n.Message, want, message)
	}
}

// wantFinalizer asserts that the object has the finalizer.
func (w *testEnv) wantFinalizer(o *unstructured.Unstructured) {
	w.Helper()
	if live := w.api.get(o); live == nil || !slices.Contains(live.GetFinalizers(), entry) {
		w.Fatalf("the finalizer was removed: %v", live)
	}
}

// wantDelay asserts the delay until the next reconciliation.
func (w *testEnv) wantDelay(got, want time.Duration) {
	w.Helper()
	if got != want {
		w.Fatalf("requeued after %s, want %s", got, want)
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
