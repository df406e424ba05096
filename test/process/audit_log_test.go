package process

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// With 10000 objects, the tests take a minute to create them, and that of budgets five with a window of 1m.
var (
	pauseObjects  = flag.Int("pause-objects", 800, "`number` of objects of TestPause_HoldsInTheAuditLog")
	budgetObjects = flag.Int("budget-objects", 400, "`number` of objects of TestBudget_HoldsInTheAuditLog")
	budgetWindow  = flag.Duration("budget-window", 10*time.Second, "its window")
)

const auditDeletions = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [delete], resources: [{group: "", resources: [configmaps]}]}
- {level: None}
`

// deletionsInLog returns when the API server has deleted ConfigMaps, according to its audit log.
func deletionsInLog(t *testing.T, audit string) *deletionTimes {
	t.Helper()
	file, err := os.Open(audit)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := &deletionTimes{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var event struct {
			StageTimestamp metav1.MicroTime
			ResponseStatus struct{ Code int }
		}
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.ResponseStatus.Code == 200 { // the last line may be incomplete
			all.add(event.StageTimestamp.Time)
		}
	}
	return all
}

// auditedCluster starts a control plane for one test that logs the deletion of ConfigMaps.
func auditedCluster(t *testing.T) (cluster *devcluster.Cluster, audit string) {
	t.Helper()
	folder := t.TempDir()
	policy, audit := filepath.Join(folder, "policy.yaml"), filepath.Join(folder, "audit.log")
	if err := os.WriteFile(policy, []byte(auditDeletions), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster = devtest.Start(t, devcluster.Options{
		Controllers: devcluster.WithoutCollector(), APIServerFlags: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + audit},
	})
	createCRDs(t, cluster.RESTConfig())
	return cluster, audit
}

// A budget of 100 holds in any window, also if the API server fails in the meantime.
func TestBudget_HoldsInTheAuditLog(t *testing.T) {
	t.Parallel()
	const allowed, windows = 100, 3
	cluster, audit := auditedCluster(t)
	config := cluster.RESTConfig()
	config.QPS = -1
	objects, ns := kubernetes.NewForConfigOrDie(config), devtest.Namespace(t, config)
	owner := createOwnerOf(t, objects, ns, *budgetObjects)
	createBudget(t, config, allowed, *budgetWindow)
	g := startReady(t, cluster)
	deleteInBackground(t, objects, owner)
	waitFor := func(n int) { waitForDeletions(t, audit, n, timeout+windows*2*(*budgetWindow)) }
	waitFor(allowed + 1) // the second window has begun
	interruptAPIServer(t, cluster, func() { g.waitForLog("Discovery failed, keeping existing watches") })
	waitFor(windows*allowed + 1)
	all := deletionsInLog(t, audit)
	if n := all.most(*budgetWindow); n > allowed {
		t.Errorf("%d deletions within %s, and %d are allowed", n, *budgetWindow, allowed)
	}
	t.Logf("%d of %d objects deleted, at most %d within %s", all.count(), *budgetObjects, all.most(*budgetWindow), *budgetWindow)
}

// waitForDeletions waits until a number of ConfigMaps was deleted.
func waitForDeletions(t *testing.T, audit string, n int, atMost time.Duration) {
	t.Helper()
	devtest.Eventually(t, atMost, func() error {
		if all := deletionsInLog(t, audit); all.count() < n {
			return fmt.Errorf("%d deletions", all.count())
		}
		return nil
	})
}

// deleteInBackground deletes an owner.
func deleteInBackground(t *testing.T, objects kubernetes.Interface, owner *corev1.Secret) {
	t.Helper()
	background := metav1.DeletePropagationBackground
	if err := objects.CoreV1().Secrets(owner.Namespace).Delete(t.Context(), owner.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
}

// A second after a pause was created, nothing more is deleted than the workers had begun; after a resume, everything is.
func TestPause_HoldsInTheAuditLog(t *testing.T) {
	t.Parallel()
	const workers = 20
	cluster, audit := auditedCluster(t)
	config := cluster.RESTConfig()
	config.QPS = -1
	objects, ns := kubernetes.NewForConfigOrDie(config), devtest.Namespace(t, config)
	owner := createOwnerOf(t, objects, ns, *pauseObjects)
	custom, err := policyset.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	startReady(t, cluster, fmt.Sprintf("--api-qps=%d", *pauseObjects/8)) // eight seconds are enough to pause it
	deleteInBackground(t, objects, owner)
	waitForDeletions(t, audit, 50, timeout)
	pause := &v1alpha1.ClusterPause{ObjectMeta: metav1.ObjectMeta{Name: "stop"}}
	if err := custom.Create(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	created := time.Now()
	devtest.Eventually(t, timeout, func() error { // that nothing is deleted takes its time to be seen
		if waited := time.Since(created); waited < 5*time.Second {
			return fmt.Errorf("paused for %s", waited)
		}
		return nil
	})
	all := deletionsInLog(t, audit)
	if all.count() >= *pauseObjects {
		t.Fatalf("all %d objects were deleted", all.count())
	}
	after := all.since(created.Add(time.Second))
	t.Logf("of %d objects, %d were deleted before the pause, %d in the second after it, and %d later", *pauseObjects, all.count()-all.since(created), all.since(created)-after, after)
	if after > workers {
		t.Errorf("%d objects were deleted more than a second after the pause", after)
	}
	if err := custom.Delete(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	waitForDeletions(t, audit, *pauseObjects, timeout)
}
