package budgeter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
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

	mu      sync.Mutex // covers what follows
	lists   error      // of reading budgets
	updates func() (before, after error)
	writes  int
	labels  map[string]string // of all objects
	reads   error
	count   int64
	deleted []time.Time
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
		WithInterceptorFuncs(interceptor.Funcs{List: a.list, SubResourceUpdate: a.update}).Build()
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

func (a *api) update(ctx context.Context, c client.Client, name string, o client.Object, options ...client.SubResourceUpdateOption) error {
	a.mu.Lock()
	a.writes++
	before, after := a.updates()
	a.mu.Unlock()
	if before != nil {
		return before
	}
	if err := c.SubResource(name).Update(ctx, o, options...); err != nil {
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
}

// start starts a replica.
func (a *api) start(name string) *replica {
	a.t.Helper()
	r := &replica{api: a}
	r.Budgeter = budgeter.New(budgeter.Options{
		Client: a.client, Absent: func(context.Context, schema.GroupKind) (bool, error) { return false, nil }, ID: name,
		Catalog: func() *catalog.Catalog { return served }, Reader: a, Events: record.NewFakeRecorder(1000), Now: time.Now, Log: logr.Discard(),
		Count: func(context.Context, *policies.Policy) (int64, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.count, nil
		},
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
		return act.Done, nil
	}})
	return err
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

func (a *api) read(name string) *v1alpha1.DeletionBudget {
	a.t.Helper()
	b := &v1alpha1.DeletionBudget{}
	if err := a.client.Get(a.t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, b); err != nil {
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

func many(namespace, prefix string, n int) (all []graph.Object) {
	for i := range n {
		all = append(all, configMap(namespace, fmt.Sprint(prefix, i)))
	}
	return all
}

// The limit holds for all replicas together, whatever happens to their requests, and if they end at any time.
func TestBudget_LimitsAllReplicasTogether(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 19)) //nolint:gosec // repeatable
				const most, window = 10, time.Minute
				a := newAPI(t, budget("b", intstr.FromInt32(most), window))
				a.updates = func() (before, after error) {
					switch random.IntN(10) {
					case 0:
						return errors.New("connection refused"), nil
					case 1:
						return nil, errors.New("the response was lost")
					default:
						return nil, nil
					}
				}
				var workers sync.WaitGroup
				for i := range 3 {
					r := a.start(fmt.Sprint("replica-", i))
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(600))*time.Second)
					workers.Go(func() {
						defer cancel()
						r.work(ctx, many("shop", fmt.Sprint("of-", i, "-"), 60)...)
						r.stop()
					})
				}
				last := a.start("last")
				last.work(t.Context(), many("shop", "last-", 30)...)
				workers.Wait()
				a.expectAtMost(most, window)
				if len(a.deleted) < 30 {
					t.Errorf("only %d were deleted", len(a.deleted))
				}
			})
		})
	}
}

func TestBudget_IsUsedUpAndThenWaitsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, budget("b", intstr.FromInt32(4), time.Minute))
		r := a.start("a")
		all := many("shop", "o", 10)
		for _, o := range all {
			if err := r.delete(o); !writer.IsWait(err) {
				t.Errorf("deleted without a reservation: %v", err)
			}
		}
		synctest.Wait()
		called := r.Called(t.Context())
		if len(called) != 4 {
			t.Fatalf("%d called", len(called))
		}
		for i, o := range all {
			err := r.delete(o)
			if i < 4 && (err != nil || called[i] != graph.IDOf(o.UID)) {
				t.Errorf("number %d waits: %v", i, err)
			}
			if i >= 4 && !writer.IsWait(err) {
				t.Errorf("number %d: %v", i, err)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b := a.read("b")
		if b.Status.Used != 4 || b.Status.Allowed != 4 || b.Status.Waiting != 6 || b.Status.Exhaustions != 1 || !apimeta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionExhausted) {
			t.Errorf("status %+v", b.Status)
		}
		if err := r.delete(all[9]); err == nil || !strings.Contains(err.Error(), "DeletionBudget shop/b is exhausted: 4 of 4 deletions in 1m0s") {
			t.Errorf("waits because of %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		var next []graph.ID
		for _, o := range all[4:8] {
			next = append(next, graph.IDOf(o.UID))
		}
		if got := r.Called(t.Context()); len(got) < 4 || !slices.Equal(got[:4], next) { // and more later, since these did not come
			t.Errorf("%d are called, or others", len(got))
		}
	})
}

func TestBudget_OfAnotherScopeDoesNotLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		none := intstr.FromInt32(0)
		selective := budget("b", none, time.Minute)
		selective.Spec.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}
		b := budget("c", none, time.Minute)
		cluster := &v1alpha1.ClusterDeletionBudget{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "cluster"}, Spec: b.Spec}
		cluster.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "other"}}
		a := newAPI(t, selective, cluster)
		r := a.start("a")
		if err := r.delete(configMap("shop", "without-labels")); err != nil {
			t.Error(err)
		}
		secret := configMap("other", "secret")
		secret.Kind.Kind = "Secret"
		if err := r.delete(secret); err != nil {
			t.Error(err)
		}
		a.set(func() { a.labels = map[string]string{"app": "shop"} })
		if err := r.delete(configMap("shop", "with-labels")); !writer.IsWait(err) {
			t.Error(err)
		}
		a.set(func() { a.reads = errors.New("timeout") })
		if err := r.delete(configMap("shop", "unread")); !writer.IsWait(err) || !strings.Contains(err.Error(), "timeout") {
			t.Error(err)
		}
		if err := r.delete(configMap("other", "of-the-cluster")); !writer.IsWait(err) {
			t.Error(err)
		}
		if by, err := r.Limits(t.Context(), configMap("other", "o")); by != "ClusterDeletionBudget c" || err != nil {
			t.Errorf("limited by %q, %v", by, err)
		}
		terminating := configMap("other", "terminating")
		terminating.Terminating = true
		if err := r.delete(terminating); err != nil {
			t.Error(err)
		}
	})
}

// Budgets that were not read, are invalid or too many stop deletions: nothing is deleted because of a mistake.
func TestBudget_ThatIsNotInForceStopsDeletions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*api, *v1alpha1.DeletionBudget) []client.Object
		want   string
	}{
		"unread": {
			func(a *api, b *v1alpha1.DeletionBudget) []client.Object {
				a.lists = errors.New("connection refused")
				return []client.Object{b}
			},
			"whether a deletion budget limits this is not known: list ClusterDeletionBudget: connection refused",
		},
		"invalid": {
			func(_ *api, b *v1alpha1.DeletionBudget) []client.Object {
				b.Spec.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "like"}}}
				return []client.Object{b}
			},
			`DeletionBudget shop/b is not in force: objectSelector can't be read: "like" is not a valid label selector operator`,
		},
		"too many": {
			func(_ *api, b *v1alpha1.DeletionBudget) (all []client.Object) {
				b.Name = "z"
				all = append(all, b)
				for i := range 16 {
					other := budget(fmt.Sprint("b", i), intstr.FromInt32(100), time.Minute)
					other.Spec.Resources[0].Resources = []string{"secrets"}
					all = append(all, other)
				}
				return all
			},
			"DeletionBudget shop/z is not in force: there are more than 16 budgets",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t)
				for _, o := range c.change(a, budget("b", intstr.FromInt32(100), time.Minute)) {
					if err := a.client.Create(t.Context(), o); err != nil {
						t.Fatal(err)
					}
				}
				r := a.start("a")
				for range 2 {
					if err := r.delete(configMap("shop", "o")); !writer.IsWait(err) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("got %v, want %s", err, c.want)
					}
					time.Sleep(10 * time.Second)
				}
			})
		})
	}
}

func TestBudget_PercentageIsCountedForEachWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, budget("b", intstr.FromString("10%"), time.Minute))
		a.count = 39
		r := a.start("a")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		r.work(ctx, many("shop", "o", 10)...)
		cancel()
		a.expectDeleted(3)
		a.set(func() { a.count = 9 })
		ctx, cancel = context.WithTimeout(t.Context(), 75*time.Second)
		r.work(ctx, many("shop", "p", 10)...)
		cancel()
		a.expectDeleted(4) // at least one
	})
}

func TestBudget_ThatTripsContinuesOnlyAfterAPersonResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget("b", intstr.FromInt32(2), time.Minute)
		b.Spec.OnExhausted = v1alpha1.OnExhaustedTrip
		a := newAPI(t, b)
		r := a.start("a")
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { r.work(ctx, many("shop", "o", 5)...); close(done) }()
		time.Sleep(time.Hour)
		a.expectDeleted(2)
		if used := a.read("b").Status.Used; used != 0 {
			t.Errorf("%d used after the window", used)
		}
		r.stop()
		cancel()
		<-done
		r = a.start("after a restart")
		go r.work(t.Context(), many("shop", "p", 5)...)
		time.Sleep(time.Hour)
		a.expectDeleted(2)
		resume := func(number string) {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.ResumeAnnotation+`":"`+number+`"}}}`))
			if err := a.client.Patch(t.Context(), a.read("b"), patch); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
		}
		resume("7") // of no exhaustion
		a.expectDeleted(2)
		resume("1")
		a.expectDeleted(4)
	})
}

// Each write of a status costs a request: there are few of them, however many deletions wait.
func TestBudget_WritesItsStatusSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, budget("b", intstr.FromInt32(100), time.Hour))
		r := a.start("a")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r.work(ctx, many("shop", "o", 5000)...)
		a.expectDeleted(100)
		if a.writes > 40 {
			t.Errorf("%d writes for 100 deletions", a.writes)
		}
		t.Logf("%d writes", a.writes)
	})
}

func TestRead_SortsBudgets(t *testing.T) {
	all := []budgetstore.Resource{budgetstore.New("shop", "a"), budgetstore.New("", "z"), budgetstore.New("shop", "A")}
	budgetstore.Sort(all)
	var got []string
	for _, r := range all {
		got = append(got, r.String())
	}
	if want := []string{"ClusterDeletionBudget z", "DeletionBudget shop/A", "DeletionBudget shop/a"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
