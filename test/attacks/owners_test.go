// Package attacks attacks Gleaner on a real control plane. Owners: objects with thousands
// of invented owner references, which any user who may create ConfigMaps can create.
package attacks

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

const (
	ownersObjects = 100
	ownersEach    = 8000

	ownersMaxDelay   = 2 * time.Second  // median delay of collection in another namespace
	ownersMaxWorst   = 10 * time.Second // longest delay, on a machine that runs other tests
	ownersMaxGETs    = 100              // a second, on average
	ownersMaxMore    = 200              // goroutines
	ownersMaxHeap    = 1 << 30          // bytes; the container has twice that
	ownersMaxSetting = 8 * time.Minute  // timeout of steps that are not measured
	ownersWatched    = 30 * time.Second
)

// ownersEnv is a cluster with Gleaner in the test's process.
type ownersEnv struct {
	*testing.T
	kube kubernetes.Interface
	gets atomic.Int64 // reads of single objects by Gleaner
}

func newOwnersEnv(t *testing.T) *ownersEnv {
	t.Helper()
	cluster := devtest.Start(t, devcluster.Options{Controllers: devcluster.WithoutCollector()})
	ctrl.SetLogger(logr.Discard())
	w := &ownersEnv{T: t}
	config := cluster.RESTConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	w.kube = kubernetes.NewForConfigOrDie(config)
	w.runCollector(cluster.RESTConfig())
	return w
}

// runCollector runs Gleaner until the test ends.
func (w *ownersEnv) runCollector(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return getCounter{next, &w.gets} })
	o := inprocess.Options(config)
	o.SweepInterval = 10 * time.Second
	inprocess.RunForTest(w, o)
}

// getCounter is a transport that counts reads of single objects.
type getCounter struct {
	http.RoundTripper
	gets *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (c getCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.RawQuery == "" {
		c.gets.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

func (w *ownersEnv) namespace(name string) string {
	w.Helper()
	if _, err := w.kube.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	return name
}

func (w *ownersEnv) create(ctx context.Context, namespace, name string, owners ...metav1.OwnerReference) (*corev1.ConfigMap, error) {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
	return w.kube.CoreV1().ConfigMaps(namespace).Create(ctx, o, metav1.CreateOptions{})
}

// measureCascade deletes an owner, and returns how long its dependent existed afterwards.
func (w *ownersEnv) measureCascade(namespace string) time.Duration {
	w.Helper()
	owner, err := w.create(w.Context(), namespace, "owner-"+string(uuid.NewUUID()))
	if err != nil {
		w.Fatal(err)
	}
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
	dependent, err := w.create(w.Context(), namespace, "dependent-"+string(owner.UID), ref)
	if err != nil {
		w.Fatal(err)
	}
	maps := w.kube.CoreV1().ConfigMaps(namespace)
	began := time.Now()
	if err := maps.Delete(w.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		w.Fatal(err)
	}
	devtest.Eventually(w, ownersMaxSetting, func() error {
		_, err := maps.Get(w.Context(), dependent.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = fmt.Errorf("dependent still exists")
		}
		return err
	})
	return time.Since(began)
}

// createAttack creates the objects of the attack.
func (w *ownersEnv) createAttack(namespace string) error {
	making, ctx := errgroup.WithContext(w.Context())
	making.SetLimit(2)
	for i := range ownersObjects {
		making.Go(func() error {
			refs := make([]metav1.OwnerReference, ownersEach)
			for j := range refs {
				refs[j] = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("never-%d-%d", i, j), UID: uuid.NewUUID()}
			}
			_, err := w.create(ctx, namespace, fmt.Sprintf("attack-%d", i), refs...)
			return err
		})
	}
	return making.Wait()
}

// Finding 4: three such objects caused 200,000 reads in six minutes, ten delayed
// collection elsewhere by a minute, and with some more the API server stopped answering.
func TestOwners_ThousandsOfInventedOwners_DelayNoOthers(t *testing.T) {
	w := newOwnersEnv(t)
	attacked, other := w.namespace("attacker"), w.namespace("other")
	var atRest, attackedBy []time.Duration
	for range 10 {
		atRest = append(atRest, w.measureCascade(other))
	}
	goroutines, gets, began := runtime.NumGoroutine(), w.gets.Load(), time.Now()
	flooded := make(chan error, 1)
	go func() { flooded <- w.createAttack(attacked) }()
	var most int
	var made bool
	for ends := began.Add(ownersMaxSetting); time.Now().Before(ends); {
		attackedBy = append(attackedBy, w.measureCascade(other))
		most = max(most, runtime.NumGoroutine()-goroutines)
		select {
		case err := <-flooded:
			if err != nil {
				t.Fatal(err)
			}
			made, ends = true, time.Now().Add(ownersWatched)
		default:
		}
	}
	if !made {
		t.Fatal("could not create the objects of the attack in time")
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	took, gets := time.Since(began), w.gets.Load()-gets
	rest, median, worst := ownersMedian(atRest), ownersMedian(attackedBy), slices.Max(attackedBy)
	t.Logf("at rest %s, during the attack %s, at worst %s; %d reads in %s, %d goroutines more, %d MiB of heap",
		rest, median, worst, gets, took, most, memory.HeapAlloc>>20)
	if median > rest+ownersMaxDelay || worst > slices.Max(atRest)+ownersMaxWorst {
		t.Errorf("collection in another namespace took %s, at worst %s, at rest %s", median, worst, rest)
	}
	if allowed := int64(ownersMaxGETs*took.Seconds()) + 1000; gets > allowed {
		t.Errorf("Gleaner read %d objects in %s", gets, took)
	}
	if most > ownersMaxMore {
		t.Errorf("%d goroutines more", most)
	}
	if memory.HeapAlloc > ownersMaxHeap {
		t.Errorf("%d MiB of heap", memory.HeapAlloc>>20)
	}
	w.waitForEvent(attacked)
}

func ownersMedian(list []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(list))[len(list)/2]
}

// waitForEvent waits for the event that says why such an object is kept.
func (w *ownersEnv) waitForEvent(namespace string) {
	w.Helper()
	devtest.Eventually(w, ownersMaxSetting, func() error {
		events, err := w.kube.CoreV1().Events(namespace).List(w.Context(), metav1.ListOptions{FieldSelector: "reason=TooManyOwners"})
		if err == nil && len(events.Items) == 0 {
			err = fmt.Errorf("no event")
		}
		return err
	})
}
