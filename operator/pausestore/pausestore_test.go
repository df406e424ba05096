package pausestore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/pausestore"
)

// api is an API server with pauses.
type api struct {
	t      *testing.T
	client client.Client
	source *pausestore.Source

	mu      sync.Mutex // covers what follows
	lists   int
	failure error // of lists
	absent  bool
	failing error // of discovery
	leading bool
}

// newAPI starts a Source in a bubble where time passes when all wait.
func newAPI(t *testing.T, prepare ...func(*api)) *api {
	t.Helper()
	a := &api{t: t, leading: true}
	for _, p := range prepare {
		p(a)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	a.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Pause{}, &v1alpha1.ClusterPause{}).
		WithInterceptorFuncs(interceptor.Funcs{List: a.list}).Build()
	a.source = pausestore.New(pausestore.Options{
		Client: a.client, Absent: a.isAbsent, Leading: func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.leading },
		Now: time.Now, Log: logr.Discard(),
	})
	return a
}

func (a *api) list(ctx context.Context, c client.WithWatch, into client.ObjectList, o ...client.ListOption) error {
	a.mu.Lock()
	a.lists++
	failure := a.failure
	a.mu.Unlock()
	if failure != nil {
		return failure
	}
	return c.List(ctx, into, o...)
}

func (a *api) isAbsent(context.Context, schema.GroupKind) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.absent, a.failing
}

func (a *api) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// run runs the Source until the test ends.
func (a *api) run() {
	ctx, cancel := context.WithCancel(a.t.Context())
	done := make(chan error, 1)
	go func() { done <- a.source.Run(ctx) }()
	a.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			a.t.Error(err)
		}
	})
	synctest.Wait()
}

func (a *api) create(o client.Object) {
	a.t.Helper()
	if err := a.client.Create(a.t.Context(), o); err != nil {
		a.t.Fatal(err)
	}
}

// stopped returns what stops a deletion in a namespace.
func (a *api) stopped(namespace, policy string) string {
	set, err := a.source.Current()
	if err != nil {
		return err.Error()
	}
	p, is := set.Stopping(namespace, policy, time.Now())
	if !is {
		return ""
	}
	return p.String()
}

func (a *api) expect(want, namespace, policy string) {
	a.t.Helper()
	if got := a.stopped(namespace, policy); got != want {
		a.t.Errorf("in %s by %q: stopped by %q, want %q", namespace, policy, got, want)
	}
}

// condition returns the condition of a pause.
func (a *api) condition(o client.Object, of func() []metav1.Condition) string {
	a.t.Helper()
	if err := a.client.Get(a.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		a.t.Fatal(err)
	}
	c := apimeta.FindStatusCondition(of(), v1alpha1.ConditionInForce)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func clusterPause(name string) *v1alpha1.ClusterPause {
	return &v1alpha1.ClusterPause{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

const unread = "whether this is paused is not known: they have not been read yet"

func TestSource_PublishesOnAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.expect(unread, "shop", "")
		a.run()
		a.expect("", "shop", "")
		a.create(clusterPause("incident"))
		a.create(&v1alpha1.Pause{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: v1alpha1.PauseSpec{
			Policy: &v1alpha1.PausedPolicy{Kind: "GCPolicy", Name: "keep"},
		}})
		lists := a.lists
		a.source.Apply(graph.Seen{Object: graph.Object{Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}}})
		synctest.Wait()
		if a.lists != lists {
			t.Error("read again because of another object")
		}
		a.source.Apply(graph.Seen{Object: graph.Object{Kind: v1alpha1.GroupVersion.WithKind("ClusterPause")}})
		synctest.Wait()
		a.expect("ClusterPause incident", "shop", "GCPolicy shop/keep")
		if err := a.client.Delete(t.Context(), clusterPause("incident")); err != nil {
			t.Fatal(err)
		}
		a.source.Apply(graph.Deleted{Object: graph.Object{Kind: v1alpha1.GroupVersion.WithKind("ClusterPause")}})
		synctest.Wait()
		a.expect("", "shop", "")
		a.expect("Pause shop/p", "shop", "GCPolicy shop/keep")
		a.expect("", "other", "GCPolicy shop/keep")
		terminating := clusterPause("terminating")
		terminating.Finalizers = []string{"example.com/keep"}
		a.create(terminating)
		if err := a.client.Delete(t.Context(), terminating); err != nil {
			t.Fatal(err)
		}
		a.source.Refresh()
		synctest.Wait()
		a.expect("", "other", "GCPolicy shop/keep")
	})
}

func TestSource_ReadsWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.run()
		a.create(clusterPause("incident"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		a.expect("ClusterPause incident", "shop", "")
	})
}

// A failed read changes nothing, but not for long.
func TestSource_PausesThatCannotBeReadAreNotKnownInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.run()
		a.set(func() { a.failure = errors.New("connection refused") })
		time.Sleep(14 * time.Second)
		a.expect("", "shop", "")
		time.Sleep(time.Second)
		if got := a.stopped("shop", ""); !strings.Contains(got, "connection refused") {
			t.Errorf("stopped by %q", got)
		}
		a.set(func() { a.failure = nil })
		time.Sleep(time.Second)
		synctest.Wait()
		a.expect("", "shop", "")
	})
}

func TestSource_TypesThatAreNotServedHaveNoPauses(t *testing.T) {
	noMatch := &apimeta.NoKindMatchError{GroupKind: v1alpha1.GroupVersion.WithKind("Pause").GroupKind()}
	for name, failure := range map[string]error{"not discovered": noMatch, "not found": apierrors.NewNotFound(schema.GroupResource{}, "")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(t, func(a *api) { a.failure = failure })
				a.run()
				a.expect(unreadBecause(failure), "shop", "") // it is not proven
				a.set(func() { a.failing = errors.New("no discovery") })
				time.Sleep(time.Second)
				synctest.Wait()
				if got := a.stopped("shop", ""); !strings.Contains(got, "no discovery") {
					t.Errorf("stopped by %q", got)
				}
				a.set(func() { a.failing, a.absent = nil, true })
				time.Sleep(time.Second)
				synctest.Wait()
				a.expect("", "shop", "")
				time.Sleep(time.Hour)
				a.expect("", "shop", "")
			})
		})
	}
}

func unreadBecause(err error) string {
	return "whether this is paused is not known: list ClusterPause: " + err.Error()
}

func TestSource_StatusSaysWhetherAPauseIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, func(a *api) { a.leading = false })
		until := metav1.NewTime(time.Now().Add(time.Hour))
		forever, limited := clusterPause("forever"), &v1alpha1.Pause{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: v1alpha1.PauseSpec{Until: &until}}
		a.create(forever)
		a.create(limited)
		a.run()
		first := func() string {
			return a.condition(forever, func() []metav1.Condition { return forever.Status.Conditions })
		}
		second := func() string {
			return a.condition(limited, func() []metav1.Condition { return limited.Status.Conditions })
		}
		if first() != "" || second() != "" {
			t.Errorf("a follower has written %q, %q", first(), second())
		}
		a.set(func() { a.leading = true })
		a.source.Refresh()
		synctest.Wait()
		if first() != "True Paused" || second() != "True Paused" {
			t.Errorf("conditions: %q, %q", first(), second())
		}
		changed := a.source.Changed()
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("that a pause has ended is not published")
		}
		a.expect("ClusterPause forever", "shop", "")
		if first() != "True Paused" || second() != "False Expired" {
			t.Errorf("conditions: %q, %q", first(), second())
		}
	})
}
