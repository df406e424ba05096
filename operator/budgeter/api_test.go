package budgeter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/budgeter"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// api is an API server with budgets, and with replicas of the operator.
type api struct {
	t      *testing.T
	client client.WithWatch

	mu       sync.Mutex // covers what follows
	lists    error      // of reading budgets
	updates  func() (before, after error)
	writes   int
	labels   map[string]string // of all objects
	reads    error
	count    int64
	countErr error
	blocks   map[string]bool // namespaces in which counting takes too long
	deleted  []time.Time
	slow     time.Duration // how long the response to a DELETE takes
	latency  time.Duration // how long a write of a budget takes
}

func newAPI(t *testing.T, all ...client.Object) *api {
	t.Helper()
	a := &api{t: t, updates: func() (before, after error) { return nil, nil }}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	a.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).
		WithStatusSubresource(&v1alpha1.DeletionBudget{}, &v1alpha1.ClusterDeletionBudget{}).
		WithInterceptorFuncs(interceptor.Funcs{List: a.list, SubResourcePatch: a.update}).Build()
	return a
}

func (a *api) list(ctx context.Context, c client.WithWatch, into client.ObjectList, o ...client.ListOption) error {
	a.mu.Lock()
	failure := a.lists
	a.mu.Unlock()
	if failure != nil {
		return failure
	}
	return c.List(ctx, into, o...)
}

func (a *api) update(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	a.mu.Lock()
	a.writes++
	before, after := a.updates()
	latency := a.latency
	a.mu.Unlock()
	time.Sleep(latency)
	if before != nil {
		return before
	}
	if err := c.SubResource(name).Patch(ctx, o, patch, options...); err != nil {
		return err
	}
	return after
}

// Get implements modulecall.Reader.
func (a *api) Get(_ context.Context, _ policies.ServiceAccount, _ schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(a.labels)
	return o, a.reads
}

// Namespace implements modulecall.Reader.
func (a *api) Namespace(_ context.Context, name string) (modulecall.Namespace, error) {
	return modulecall.Namespace{Labels: map[string]string{"name": name}}, nil
}

func (a *api) countObjects(ctx context.Context, of *policies.Policy) (int64, error) {
	a.mu.Lock()
	n, failure, blocks := a.count, a.countErr, a.blocks[of.Namespace]
	a.mu.Unlock()
	if blocks {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return n, failure
}

func (a *api) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

var served = catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
	{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}},
	{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch", "delete", "patch"}},
}}}, catalog.Settings{})

// replica is one replica of the operator, whose workers delete what is queued.
type replica struct {
	*api
	*budgeter.Budgeter
	writer writer.Writer
	stop   context.CancelFunc
	leads  bool // covered by the mutex of api
}

// start starts a replica.
func (a *api) start(name string) *replica {
	a.t.Helper()
	r := &replica{api: a, leads: true}
	r.Budgeter = budgeter.New(budgeter.Options{
		Client: a.client, Absent: func(context.Context, schema.GroupKind) (bool, error) { return false, nil }, ID: name,
		Catalog: func() *catalog.Catalog { return served }, Reader: a, Events: record.NewFakeRecorder(1000), Now: time.Now, Log: logr.Discard(),
		Leading: func() bool { a.mu.Lock(); defer a.mu.Unlock(); return r.leads }, Count: a.countObjects,
	})
	reserves, confirms := r.Steps()
	r.writer.Steps = []writer.Step{reserves, confirms}
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			a.t.Error(err)
		}
	})
	a.t.Cleanup(r.stop)
	synctest.Wait()
	return r
}

func configMap(namespace, name string) graph.Object {
	return graph.Object{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), ResourceVersion: "1"}
}

// delete deletes an object; the error says why it waits.
func (r *replica) delete(o graph.Object) error {
	_, err := r.writer.Do(r.t.Context(), writer.Write{Origin: writer.Collector, Target: o, Effect: writer.Deletes, Do: func(context.Context) (act.Result, error) {
		r.set(func() { r.deleted = append(r.deleted, time.Now()) })
		time.Sleep(r.slow)
		return act.Done, nil
	}})
	return err
}

// expectWaiting deletes objects before what they need is reserved, and lets it be reserved then.
func (r *replica) expectWaiting(objects ...graph.Object) {
	r.t.Helper()
	const latency = time.Millisecond // with none, the first may be reserved before the last is deleted
	r.set(func() { r.latency = latency })
	for _, o := range objects {
		if err := r.delete(o); !writer.IsWait(err) {
			r.t.Errorf("deleted without a reservation: %v", err)
		}
	}
	time.Sleep(latency)
	synctest.Wait()
	r.set(func() { r.latency = 0 })
}

// work deletes objects as a queue does: again when they are called, and at the latest when the step says.
func (r *replica) work(ctx context.Context, objects ...graph.Object) {
	waits := map[graph.ID]graph.Object{}
	try := func(o graph.Object) {
		if err := r.delete(o); err != nil {
			waits[graph.IDOf(o.UID)] = o
			return
		}
		delete(waits, graph.IDOf(o.UID))
	}
	for _, o := range objects {
		try(o)
	}
	for len(waits) > 0 {
		called, cancel := context.WithTimeout(ctx, time.Minute)
		ids := r.Called(called)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if ids == nil {
			for id := range waits {
				ids = append(ids, id)
			}
		}
		for _, id := range ids {
			if o, ok := waits[id]; ok {
				try(o)
			}
		}
	}
}

// workAtOnce deletes objects with some workers, until all are deleted.
func (r *replica) workAtOnce(workers int, objects ...graph.Object) {
	ctx, done := context.WithCancel(r.t.Context())
	defer done()
	queue, byID := make(chan graph.Object, len(objects)), map[graph.ID]graph.Object{}
	for _, o := range objects {
		byID[graph.IDOf(o.UID)] = o
		queue <- o
	}
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			for _, id := range r.Called(ctx) {
				queue <- byID[id]
			}
		}
	})
	for range workers {
		group.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case o := <-queue:
					_ = r.delete(o) // it waits until it is called
				}
				r.mu.Lock()
				if len(r.deleted) >= len(objects) {
					done()
				}
				r.mu.Unlock()
			}
		})
	}
	group.Wait()
}

// expectAtMost checks that no interval of a window's length has more deletions.
func (a *api) expectAtMost(n int, window time.Duration) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.SortFunc(a.deleted, time.Time.Compare)
	for i := n; i < len(a.deleted); i++ {
		if took := a.deleted[i].Sub(a.deleted[i-n]); took < window {
			a.t.Errorf("%d deletions within %s", n+1, took)
			return
		}
	}
}

// budget returns a DeletionBudget of ConfigMaps in namespace shop.
func budget(name string, most intstr.IntOrString, window time.Duration) *v1alpha1.DeletionBudget {
	return &v1alpha1.DeletionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: 1},
		Spec: v1alpha1.DeletionBudgetSpec{
			Resources:    []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}}},
			MaxDeletions: most, Window: metav1.Duration{Duration: window}, OnExhausted: v1alpha1.OnExhaustedWait,
		},
	}
}

func (a *api) read() *v1alpha1.DeletionBudget {
	a.t.Helper()
	b := &v1alpha1.DeletionBudget{}
	if err := a.client.Get(a.t.Context(), types.NamespacedName{Namespace: "shop", Name: "b"}, b); err != nil {
		a.t.Fatal(err)
	}
	return b
}

func (a *api) expectDeleted(want int) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.deleted) != want {
		a.t.Errorf("%d are deleted, want %d", len(a.deleted), want)
	}
}

func many(prefix string, n int) (all []graph.Object) {
	for i := range n {
		all = append(all, configMap("shop", fmt.Sprint(prefix, i)))
	}
	return all
}
