package deploy

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

var rewrite = flag.Bool("rewrite", false, "write "+metricsFile+"; then read the diff")

// metricsFile lists the metrics that the rules and the dashboard may use, which test/prometheus
// checks.
const metricsFile = "../prometheus/testdata/metrics"

// finalizerManifests has one object that waits for a finalizer, and one whose finalizer is done.
const finalizerManifests = `
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: served, namespace: NAMESPACE}
spec:
  rego:
    inline: |
      package gleaner
      default finalize := {"decision": "Wait"}
      finalize := {"decision": "Act", "intents": [{"id": "e", "event": {"type": "Normal", "reason": "Going", "message": "it goes"}}]} if {
        input.object.metadata.name == "goes"
        not input.results.e
      } else := {"decision": "Done"} if input.object.metadata.name == "goes"
---
apiVersion: gleaner.dev/v1alpha1
kind: Finalizer
metadata: {name: served, namespace: NAMESPACE}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  module: {name: served}
  needs: Reference
  serviceAccount: {name: served}
  mode: Enforce
  onRemoval: Release
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: served, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: served, namespace: NAMESPACE}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: served, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: served}
subjects: [{kind: ServiceAccount, name: served, namespace: NAMESPACE}]
---
apiVersion: gleaner.dev/v1alpha1
kind: DeletionBudget
metadata: {name: many, namespace: NAMESPACE}
spec: {resources: [{apiGroups: ["*"], resources: ["*"]}], maxDeletions: 1000, window: 1h}
---
apiVersion: gleaner.dev/v1alpha1
kind: RetentionPolicy
metadata: {name: temporary, namespace: NAMESPACE}
spec: {mode: Enforce, resources: [{apiGroups: [""], resources: [secrets]}], objectSelector: {matchLabels: {temporary: "yes"}}, keepLast: 0}
---
apiVersion: v1
kind: Secret
metadata: {name: temporary, namespace: NAMESPACE, labels: {temporary: "yes"}}
---
apiVersion: v1
kind: Secret
metadata: {name: goes, namespace: NAMESPACE, finalizers: [NAMESPACE.gleaner.dev/served]}
---
apiVersion: v1
kind: Secret
metadata: {name: waits, namespace: NAMESPACE, finalizers: [NAMESPACE.gleaner.dev/served]}`

// The installation is that of docs/install.md, with monitoring.
func TestMonitoring(t *testing.T) {
	cluster := startBareCluster(t)
	createThirdPartyCRDs(t, cluster, "monitoring.coreos.com", "ServiceMonitor", "PrometheusRule")
	own := installExample(t)
	kubectl(t, cluster, "apply", "-k", own)
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	deployed := container(t, client)
	if deployed.Image != "registry.example.com/gleaner:v1.2.3" || !slices.Contains(deployed.Args, "--finalizer-networks=10.96.0.0/16") {
		t.Errorf("kustomization of docs/install.md runs %s %v", deployed.Image, deployed.Args)
	}
	dashboard, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "gleaner-dashboard", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if dashboard.Labels["grafana_dashboard"] == "" || !strings.Contains(dashboard.Data["gleaner.json"], "gleaner_writes_enabled") {
		t.Errorf("dashboard is %v", dashboard)
	}

	w := newEnv(t, cluster.RESTConfig())
	p := newPod(t, cluster, imageRoot(t), false) // in a root of its own it has no /proc, unlike in a pod
	archive := filepath.Join(p.root, "archive")
	if err := errors.Join(os.Mkdir(archive, 0o777), os.Chmod(archive, 0o777)); err != nil {
		t.Fatal(err)
	}
	p.args = append(p.args, "--archive=file://"+archive)
	o := startPod(t, p)
	o.waitUntilReady("/readyz")
	w.deleteAsCollector(cluster)
	w.apply(cluster, strings.ReplaceAll(keepsAll, `"keep"`, `"keep-NAMESPACE"`), "clustergcpolicy/keep-"+w.ns)
	w.expectKeeps("kept")
	kubectl(t, cluster, "apply", "-k", "../../crds/manifests/retention")
	kubectl(t, cluster, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	w.apply(cluster, finalizerManifests, "-n", w.ns, "finalizers.gleaner.dev/served")
	kubectl(t, cluster, "delete", "-n", w.ns, "secrets/goes", "--timeout", timeout.String())
	kubectl(t, cluster, "delete", "-n", w.ns, "secrets/waits", "--wait=false")
	kubectl(t, cluster, "wait", "-n", w.ns, "--for=delete", "secrets/temporary", "--timeout", timeout.String())

	reader := token(t, cluster, w.ns, w.createBoundAccount("prometheus", "gleaner-metrics-reader"))
	var text string
	devtest.Eventually(t, timeout, func() error {
		code, body, err := get(t, o.metrics+"/metrics", reader)
		if err == nil && (code != http.StatusOK || !strings.Contains(body, w.ns+`/served",state="pending"} 1`) || !strings.Contains(body, "\ngleaner_retention_removed_total{")) {
			err = fmt.Errorf("got %d:\n%s", code, body)
		}
		text = body
		return err
	})
	t.Run("metrics are those that rules and the dashboard are tested with", func(t *testing.T) { compareMetrics(t, text) })
	t.Run("metrics follow naming conventions", func(t *testing.T) { lint(t, text) })

	removeResources(t, cluster)
	o.stop()
	kubectl(t, cluster, "delete", "-k", own, "--timeout", timeout.String())
}

// deleteAsCollector deletes an object through the built-in collector with a call of the webhook. For a kept
// object the webhook may not be called in time.
func (w *env) deleteAsCollector(cluster *devcluster.Cluster) {
	w.Helper()
	policy := "clustergcpolicy/drop-" + w.ns
	w.apply(cluster, strings.NewReplacer(`"keep"`, `"drop-NAMESPACE"`, `"Orphan"`, `"Delete"`).Replace(keepsAll), policy)
	owner := w.create("owner-of-dropped", w.ns)
	dropped := w.create("dropped", w.ns, owner)
	if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.waitForObject(dropped, func(live *corev1.ConfigMap) bool { return live == nil })
	kubectl(w.T, cluster, "delete", policy, "--timeout", timeout.String())
}

var firstKustomization = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// installExample creates the kustomization of docs/install.md next to a checkout.
func installExample(t *testing.T) (folder string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	found := firstKustomization.FindSubmatch(text)
	if found == nil {
		t.Fatal("docs/install.md has no kustomization")
	}
	folder = t.TempDir()
	for _, part := range []string{"config", "crds/manifests"} {
		if err := os.CopyFS(filepath.Join(folder, "gleaner", part), os.DirFS(filepath.Join("../..", part))); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(folder, "kustomization.yaml"), found[1], 0o600)
	return folder
}

// compareMetrics compares the metrics with the list.
func compareMetrics(t *testing.T, text string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for name, family := range families {
		if !ownMetrics.MatchString(name) {
			continue
		}
		labels := map[string]bool{}
		for _, m := range family.Metric {
			for _, l := range m.Label {
				labels[l.GetName()] = true
			}
		}
		lines = append(lines, strings.Join(append([]string{name, metricType(family)}, sortedKeys(labels)...), " ")+"\n")
	}
	slices.Sort(lines)
	got := strings.Join(lines, "")
	if *rewrite {
		writeFile(t, metricsFile, []byte(got), 0o644)
	}
	want, err := os.ReadFile(metricsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is out of date; run this test with -rewrite, then read the diff (-want +got):\n%s", metricsFile, diff)
	}
}

// ownMetrics matches Gleaner's own metrics. Those of Go, controller-runtime and client-go
// may change with their versions.
var ownMetrics = regexp.MustCompile(`^(gleaner_.*|workqueue_depth|process_(start_time_seconds|resident_memory_bytes|cpu_seconds_total))$`)

func metricType(family *dto.MetricFamily) string { return strings.ToLower(family.GetType().String()) }

func sortedKeys(set map[string]bool) []string {
	var all []string
	for name := range set {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// lint checks Gleaner's own metrics with Prometheus' linter.
func lint(t *testing.T, text string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "gleaner_") {
			err = errors.Join(err, fmt.Errorf("%s: %s", p.Metric, p.Text))
		}
	}
	if err != nil {
		t.Error(err)
	}
}
