package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

func waitForStatus(t *testing.T, collector *run.Operator, collecting bool, message string) {
	t.Helper()
	devtest.Eventually(t, timeout, func() error {
		got := collector.Show().Status()
		if got.Collecting != collecting || !strings.Contains(got.Message, message) {
			return fmt.Errorf("status is %+v", got)
		}
		return nil
	})
}

// metricValue returns the value of a metric without labels.
func metricValue(t *testing.T, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("metric %s not found", name)
	return 0
}

func TestCanary_SecondCollector_WritesNothing(t *testing.T) {
	w := newEnv(t) // with the shared collector, which is the second collector here
	o := inprocess.Options(w.config)
	o.CanaryTimeout = 2 * time.Second
	shown := prometheus.NewRegistry()
	o.Metrics = shown
	second := inprocess.RunForTest(t, o)
	waitForStatus(t, second, false, "--controllers=*,-garbage-collector-controller")
	for name, want := range map[string]float64{"gleaner_collector_unexpected": 1, "gleaner_writes_enabled": 0} {
		if got := metricValue(t, shown, name); got != want {
			t.Errorf("%s is %g", name, got)
		}
	}
	w.waitForDeletion(w.create(objectSpec{name: "dependent", owners: []metav1.OwnerReference{missingOwnerRef()}}))
	if records := second.Records(""); len(records) != 0 {
		t.Errorf("the second collector made decisions: %v", records)
	}
}

// On a control plane of its own: no other collector runs until kube-controller-manager
// comes back with its own, as after an upgrade.
func TestCanary_BuiltInCollector_Returns(t *testing.T) {
	cluster := devtest.Start(t, devcluster.Options{Controllers: devcluster.WithoutCollector()})
	o := inprocess.Options(cluster.RESTConfig())
	o.DryRun = true
	t.Run("a dry run decides, records and writes nothing", func(t *testing.T) {
		dry := inprocess.RunForTest(t, o)
		w := newEnvOn(t, o.Config, dry)
		dependent := w.create(objectSpec{name: "dependent", owners: []metav1.OwnerReference{missingOwnerRef()}})
		devtest.Eventually(t, timeout, func() error {
			for _, e := range dry.Records(dependent.GetUID()) {
				if e.Action == "Delete" && e.Result == "DryRun" {
					return nil
				}
			}
			return fmt.Errorf("no decision yet")
		})
		if w.get(dependent) == nil {
			t.Error("the dependent is gone")
		}
		waitForStatus(t, dry, false, "dry run")
	})
	o = inprocess.Options(cluster.RESTConfig())
	o.CanaryTimeout, o.CanaryInterval = 2*time.Second, 2*time.Second
	before := newEnvOn(t, o.Config, nil)
	left := before.create(objectSpec{name: "left", owners: []metav1.OwnerReference{missingOwnerRef()}})
	collector := inprocess.RunForTest(t, o)
	w := newEnvOn(t, o.Config, collector)
	before.collector = collector
	waitForStatus(t, collector, true, "collecting")
	before.waitForDeletion(left) // G-54: created before the collector started
	w.waitForDeletion(w.create(objectSpec{name: "dependent", owners: []metav1.OwnerReference{missingOwnerRef()}}))
	restartControllerManager(t, cluster)
	waitForStatus(t, collector, false, "another garbage collector is running")
	restartControllerManager(t, cluster, devcluster.WithoutCollector()...)
	waitForStatus(t, collector, true, "collecting")
	w.waitForDeletion(w.create(objectSpec{name: "again", owners: []metav1.OwnerReference{missingOwnerRef()}}))
}

// restartControllerManager restarts the controller manager with other controllers.
func restartControllerManager(t *testing.T, cluster *devcluster.Cluster, controllers ...string) {
	t.Helper()
	if err := cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartControllerManager(t.Context(), controllers...); err != nil {
		t.Fatal(err)
	}
}
