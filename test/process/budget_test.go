package process

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// deletionTimes are the times at which ConfigMaps were deleted.
type deletionTimes struct {
	mu  sync.Mutex // covers all
	all []time.Time
}

func (d *deletionTimes) add(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, at)
}

func (d *deletionTimes) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

// since counts the deletions after a time.
func (d *deletionTimes) since(at time.Time) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, deleted := range d.all {
		if deleted.After(at) {
			n++
		}
	}
	return n
}

// most returns the maximum number of deletions in an interval of a window's length.
func (d *deletionTimes) most(window time.Duration) (most int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.all, time.Time.Compare)
	first := 0
	for i, at := range d.all {
		for at.Sub(d.all[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// createOwnerOf creates ConfigMaps, and the Secret that owns them.
func createOwnerOf(t *testing.T, objects kubernetes.Interface, ns string, dependents int) *corev1.Secret {
	t.Helper()
	owner, err := objects.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID}
	var creating errgroup.Group
	creating.SetLimit(8)
	for i := range dependents {
		creating.Go(func() error {
			dependent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("dependent-%d", i), OwnerReferences: []metav1.OwnerReference{ref}}}
			_, err := objects.CoreV1().ConfigMaps(ns).Create(t.Context(), dependent, metav1.CreateOptions{})
			return err
		})
	}
	if err := creating.Wait(); err != nil {
		t.Fatal(err)
	}
	return owner
}

// createBudget creates a budget for all objects, and returns a client for it.
func createBudget(t *testing.T, config *rest.Config, allowed int, window time.Duration) ctrlclient.Client {
	t.Helper()
	custom, err := policyset.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	budget := &v1alpha1.ClusterDeletionBudget{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: v1alpha1.DeletionBudgetSpec{
		Resources: []v1alpha1.ResourceRule{{APIGroups: []string{"*"}, Resources: []string{"*"}}}, Window: metav1.Duration{Duration: window},
	}}
	budget.Spec.MaxDeletions = intstr.FromInt(allowed)
	devtest.Eventually(t, timeout, func() error { return custom.Create(t.Context(), budget) })
	return custom
}

// Two processes delete at the same time, without leader election, and are killed again and again.
func TestSIGKILL_DoesNotExceedABudget(t *testing.T) {
	t.Parallel()
	const ( // what a killed process has reserved, a quarter of what is allowed, is used up for a while
		dependents, allowed, kills = 400, 60, 2
		window                     = 15 * time.Second
		delay                      = 500 * time.Millisecond // of a watch event
	)
	cluster := newCluster(t)
	config := cluster.RESTConfig()
	createCRDs(t, config)
	objects, ns := kubernetes.NewForConfigOrDie(config), devtest.Namespace(t, config)
	maps, owner := objects.CoreV1().ConfigMaps(ns), createOwnerOf(t, objects, ns, dependents)
	custom := createBudget(t, config, allowed, window)
	var deleted deletionTimes
	events, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	go func() {
		for e := range events.ResultChan() {
			if e.Type == watch.Deleted {
				deleted.add(time.Now())
			}
		}
	}()
	deleteInBackground(t, objects, owner)
	steady := startOperator(t, cluster, "--api-qps=50")
	for range kills {
		before := deleted.count()
		g := startOperator(t, cluster, "--api-qps=50")
		devtest.Eventually(t, timeout, func() error {
			if deleted.count() == before {
				return errors.New("nothing was deleted")
			}
			return nil
		})
		g.process.Kill()
	}
	if n := deleted.most(window - delay); n > allowed {
		t.Errorf("%d deletions within %s, and %d are allowed", n, window, allowed)
	}
	t.Logf("killed a process %d times: %d deleted, and at most %d within %s", kills, deleted.count(), deleted.most(window-delay), window)
	var status v1alpha1.ClusterDeletionBudget
	if err := custom.Get(t.Context(), types.NamespacedName{Name: "few"}, &status); err != nil {
		t.Fatal(err)
	}
	if s := status.Status; s.Allowed != allowed || s.Used == 0 {
		t.Errorf("%d are deleted, and the status is %+v", deleted.count(), s)
	}
	steady.stop()
}
