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

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

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
						r.work(ctx, many(fmt.Sprint("of-", i, "-"), 60)...)
						r.stop()
					})
				}
				last := a.start("last")
				last.work(t.Context(), many("last-", 30)...)
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
		all := many("o", 10)
		r.expectWaiting(all...)
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
		b := a.read()
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

// A budget that is not exhausted costs few writes, and hardly any time in which deletions wait for them. The time is simulated:
// 20 workers delete 500 objects per second, and the API server takes 15 ms for a write.
func TestBudget_ThatIsNotExhaustedCostsLessThanThreePercent(t *testing.T) {
	took := func(t *testing.T, budgets ...client.Object) (took time.Duration, writes int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, budgets...)
			a.slow, a.latency = 40*time.Millisecond, 15*time.Millisecond
			r := a.start("a")
			began, before := time.Now(), a.writes
			r.workAtOnce(20, many("o", 10_000)...)
			took, writes = time.Since(began), a.writes-before
		})
		return took, writes
	}
	without, _ := took(t)
	with, writes := took(t, budget("b", intstr.FromInt32(1_000_000), time.Hour))
	t.Logf("10,000 deletions took %s without a budget, and %s with one, which was written %d times", without, with, writes)
	if with > without*103/100 || writes > 100 || writes == 0 {
		t.Errorf("10,000 deletions took %s without a budget, and %s with one, which was written %d times", without, with, writes)
	}
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

func TestBudget_ThatTripsContinuesOnlyAfterAPersonResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget("b", intstr.FromInt32(2), time.Minute)
		b.Spec.OnExhausted = v1alpha1.OnExhaustedTrip
		a := newAPI(t, b)
		r := a.start("a")
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { r.work(ctx, many("o", 5)...); close(done) }()
		time.Sleep(time.Hour)
		a.expectDeleted(2)
		if used := a.read().Status.Used; used != 0 {
			t.Errorf("%d used after the window", used)
		}
		r.stop()
		cancel()
		<-done
		r = a.start("after a restart")
		go r.work(t.Context(), many("p", 5)...)
		time.Sleep(time.Hour)
		a.expectDeleted(2)
		resume := func(number string) {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.ResumeAnnotation+`":"`+number+`"}}}`))
			if err := a.client.Patch(t.Context(), a.read(), patch); err != nil {
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

// A replica that does not lead deletes nothing, and knows nothing about what waits.
func TestBudget_AReplicaThatDoesNotLeadWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, budget("b", intstr.FromInt32(2), time.Hour))
		follower := a.start("follower")
		a.set(func() { follower.leads = false })
		leader := a.start("leader")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		leader.work(ctx, many("o", 5)...)
		b := a.read()
		if b.Status.Exhaustions != 1 || b.Status.Waiting != 3 || !apimeta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionExhausted) {
			t.Errorf("status %+v", b.Status)
		}
		leader.stop() // and the other one takes over
		a.set(func() { follower.leads = true })
		follower.Refresh()
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		follower.work(ctx, many("o", 5)[2:]...)
		if n := a.read().Status.Exhaustions; n != 1 {
			t.Errorf("exhausted %d times after a change of the leader", n)
		}
		a.expectDeleted(2)
	})
}

// A person may resume before the outcomes of the last deletions are written.
func TestBudget_ResumedAtOnceForgivesWhatIsNotSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget("b", intstr.FromInt32(2), time.Hour)
		b.Spec.OnExhausted = v1alpha1.OnExhaustedTrip
		a := newAPI(t, b)
		a.slow = 300 * time.Millisecond
		r := a.start("a")
		all := many("o", 3)
		r.expectWaiting(all...)
		ctx, cancel := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		defer workers.Wait()
		defer cancel()
		for i, o := range all { // the third one waits
			if synctest.Wait(); i < 2 {
				workers.Go(func() { _ = r.delete(o) })
			} else {
				workers.Go(func() { r.work(ctx, o) })
			}
		}
		for a.read().Status.Exhaustions == 0 {
			time.Sleep(time.Millisecond)
		}
		if len(a.read().Status.Reservations) == 0 {
			t.Fatalf("settled already: %+v", a.read().Status)
		}
		time.Sleep(a.slow)
		synctest.Wait() // the outcomes are known, and not written
		a.expectDeleted(2)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.ResumeAnnotation+`":"1"}}}`))
		if err := a.client.Patch(t.Context(), a.read(), patch); err != nil {
			t.Fatal(err)
		}
		r.Refresh()
		time.Sleep(10 * time.Second)
		a.expectDeleted(3)
		if n := a.read().Status.Exhaustions; n != 1 {
			t.Errorf("exhausted %d times", n)
		}
	})
}

// Each write of a status costs a request: there are few of them, however many deletions wait.
func TestBudget_WritesItsStatusSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, budget("b", intstr.FromInt32(100), time.Hour))
		r := a.start("a")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		r.work(ctx, many("o", 5000)...)
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
