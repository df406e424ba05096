package process

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/proxy"
)

func TestSIGTERM_FinishesWorkInProgress(t *testing.T) {
	const dependents = 300
	cluster := devtest.Shared(t)
	w := newEnv(t, cluster)
	owner, live := w.create("owner"), w.create("live-owner")
	targets := w.createMany("doomed-", dependents, owner)
	w.createMany("kept-", 20, live)
	w.createMany("shared-", 20, owner, live)
	p, err := proxy.Start(cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	// After as many deletes, the workers wait for the next ones until the process has begun
	// to end. One namespace has half of the workers.
	const first, inProgress = 20, 2
	var deletes atomic.Int32
	var terminated atomic.Bool
	ending := make(chan struct{})
	held := p.Fail(-1, func(c proxy.Call) bool {
		return proxy.InNamespace(w.ns, "delete")(c) && deletes.Add(1) > first
	}, func(response http.ResponseWriter, r *http.Request, pass http.Handler) {
		select {
		case <-ending:
			pass.ServeHTTP(response, r)
		case <-r.Context().Done():
			if terminated.Load() {
				t.Errorf("%s %s was abandoned", r.Method, r.URL.Path)
			}
		}
	})
	g := startReady(t, cluster, "--kubeconfig="+kubeconfig, fmt.Sprintf("--workers=%d", 2*inProgress))
	w.delete(owner)
	devtest.Eventually(t, timeout, func() error {
		if n := held.Count(); n < inProgress {
			return fmt.Errorf("%d deletes are in progress", n)
		}
		return nil
	})
	terminated.Store(true)
	if err := g.process.Terminate(); err != nil {
		t.Fatal(err)
	}
	g.waitForLog("Stopping and waiting for non leader election runnables")
	close(ending)
	if err := g.process.Wait(stopTime); err != nil {
		t.Error(err)
	}
	gone := missingNames(targets, w.listNames())
	if diff := cmp.Diff(gone, g.deletedNames(w.ns)); diff != "" {
		t.Errorf("deleted objects (-) differ from those that the log says were deleted (+):\n%s", diff)
	}
	if len(gone) == dependents {
		t.Error("process emptied its queue instead of finishing only the work in progress")
	}
	startReady(t, cluster)
	devtest.Eventually(t, timeout, func() error {
		if gone := missingNames(targets, w.listNames()); len(gone) != dependents {
			return fmt.Errorf("%d of %d dependents are gone", len(gone), dependents)
		}
		return nil
	})
	if n := len(w.listNames()); n != 1+20+20 {
		t.Errorf("%d objects with a remaining owner are left", n)
	}
}

// missingNames returns the names of the objects that are not in left.
func missingNames(objects []*corev1.ConfigMap, left map[string]bool) map[string]bool {
	names := map[string]bool{}
	for _, o := range objects {
		if !left[o.Name] {
			names[o.Name] = true
		}
	}
	return names
}

// deletedNames returns the names of a namespace's ConfigMaps that the process has deleted
// according to its log.
func (g *operator) deletedNames(namespace string) map[string]bool {
	names := map[string]bool{}
	for _, line := range g.decisionLines("") {
		name, ok := strings.CutPrefix(fmt.Sprint(line["object"]), "ConfigMap "+namespace+"/")
		if ok && line["action"] == "Delete" && line["result"] == "Done" {
			names[name] = true
		}
	}
	return names
}

// Losing the leader without a release of its lease is tested in test/faults, and
// takes the lease's duration.
func TestLeaderElection_FollowerTakesOverWithAWarmCache(t *testing.T) {
	cluster := devtest.Shared(t)
	w := newEnv(t, cluster)
	flags := []string{"--leader-elect", "--namespace=" + w.ns}
	leader := startReady(t, cluster, flags...)
	w.waitForDeletion(w.createOrphan("first")) // shows that it is the leader
	follower := startReady(t, cluster, flags...)
	second := w.createOrphan("second")
	w.waitForDeletion(second)
	leader.waitForRecord(second.UID)
	if decided := follower.records(""); len(decided) != 0 {
		t.Errorf("follower decided %v, leader %v", decided, leader.records(""))
	}
	read := follower.countReads()
	holders := w.watchLease()
	leader.stop()
	between := w.createOrphan("between") // without a leader
	w.waitForDeletion(between)
	follower.waitForRecord(between.UID)
	// A lease that is released is acquired at once, and one that is not only after its duration.
	if first := holders(); first != "" {
		t.Errorf("the lease was not released before it was acquired by %s", first)
	}
	// A restarted replica lists and watches each of some fifty types; a follower that becomes the leader
	// at most Gleaner's own.
	own, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	if again := follower.countReads() - read; again > float64(2*len(own)) || read < 60 {
		t.Errorf("follower made %v lists and watches before it took over, and %v afterwards, with %d types of its own", read, again, len(own))
	}
}

// watchLease watches the lease, and returns a function that returns the first holder after
// the present one.
func (w *env) watchLease() func() string {
	w.Helper()
	const name = "gleaner.dev"
	leases := w.kube.CoordinationV1().Leases(w.ns)
	now, err := leases.Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	watch, err := leases.Watch(w.Context(), metav1.ListOptions{ResourceVersion: now.ResourceVersion, FieldSelector: "metadata.name=" + name})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(watch.Stop)
	return func() string {
		w.Helper()
		for {
			select {
			case e := <-watch.ResultChan():
				lease, ok := e.Object.(*coordinationv1.Lease)
				if !ok {
					w.Fatalf("watch of the lease sent %v", e)
				}
				if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); holder != *now.Spec.HolderIdentity {
					return holder
				}
			case <-time.After(timeout):
				w.Fatal("the lease keeps its holder")
			}
		}
	}
}

// countReads returns how often a process has listed a type or started to watch one.
func (g *operator) countReads() float64 {
	g.Helper()
	lists, _ := g.metric("gleaner_api_calls_total", `verb="list"`)
	watches, _ := g.metric("gleaner_api_calls_total", `verb="watch"`)
	return lists + watches
}

func TestAPIServer_Outage_IsSurvived(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	w := newEnv(t, cluster)
	g := startReady(t, cluster)
	w.waitForDeletion(w.createOrphan("before"))
	owner := w.create("owner")
	dependent := w.create("dependent", owner)
	interruptAPIServer(t, cluster, func() { g.waitForLog("Discovery failed, keeping existing watches") })
	if err := g.process.Ended(); err != nil {
		t.Fatal(err)
	}
	w.delete(owner)
	w.waitForDeletion(dependent)
}

func TestAPIServer_OutageLongerThanTheLease_IsSurvived(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	w := newEnv(t, cluster)
	g := startReady(t, cluster, "--leader-elect", "--canary-timeout=1s")
	w.waitForDeletion(w.createOrphan("before"))
	owner := w.create("owner")
	dependent := w.create("dependent", owner)
	interruptAPIServer(t, cluster, func() { g.waitForLog("Lost the lease: following") })
	if err := g.process.Ended(); err != nil {
		t.Fatal(err)
	}
	w.delete(owner)
	w.waitForDeletion(dependent)
}

// interruptAPIServer stops the API server until something has happened.
func interruptAPIServer(t *testing.T, cluster *devcluster.Cluster, waitForEvent func()) {
	t.Helper()
	if err := cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	waitForEvent()
	if err := cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}
