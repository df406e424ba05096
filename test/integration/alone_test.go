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
	"github.com/gleaner-dev/gleaner/operator/loop"
)

// run runs a collector for the length of a test.
func run(t *testing.T, o loop.Options) *loop.Loop {
	t.Helper()
	collector, stop, err := start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return collector
}

func status(t *testing.T, collector *loop.Loop, collecting bool, message string) {
	t.Helper()
	devtest.Eventually(t, patience, func() error {
		got := collector.Show().Status()
		if got.Collecting != collecting || !strings.Contains(got.Message, message) {
			return fmt.Errorf("status is %+v", got)
		}
		return nil
	})
}

// value is that of a metric without labels.
func value(t *testing.T, from prometheus.Gatherer, name string) float64 {
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
	t.Fatalf("there is no %s", name)
	return 0
}

func TestCanary_ASecondCollectorWritesNothing(t *testing.T) {
	w := newWorld(t) // with the shared collector, which is the other one here
	o := options(w.config)
	o.CanaryTimeout = 2 * time.Second
	shown := prometheus.NewRegistry()
	o.Metrics = shown
	second := run(t, o)
	status(t, second, false, "--controllers=*,-garbage-collector-controller")
	for name, want := range map[string]float64{"gleaner_collector_unexpected": 1, "gleaner_writes_enabled": 0} {
		if got := value(t, shown, name); got != want {
			t.Errorf("%s is %g", name, got)
		}
	}
	w.goes(w.make(thing{name: "dependent", owners: []metav1.OwnerReference{lost()}}))
	if records := second.Records(""); len(records) != 0 {
		t.Errorf("the second collector decided: %v", records)
	}
}

// On a control plane of its own: nobody else is there, until kube-controller-
// manager comes back with its collector, as after an upgrade.
func TestCanary_TheBuiltInCollectorComesBack(t *testing.T) {
	cluster := devtest.Start(t, devcluster.Options{Controllers: noCollector})
	o := options(cluster.RESTConfig())
	o.DryRun = true
	t.Run("a dry run decides, records and writes nothing", func(t *testing.T) {
		dry := run(t, o)
		w := worldOn(t, o.Config, dry)
		dependent := w.make(thing{name: "dependent", owners: []metav1.OwnerReference{lost()}})
		devtest.Eventually(t, patience, func() error {
			for _, e := range dry.Records(dependent.GetUID()) {
				if e.Action == "Delete" && e.Result == "DryRun" {
					return nil
				}
			}
			return fmt.Errorf("nothing is decided yet")
		})
		if w.get(dependent) == nil {
			t.Error("the dependent is gone")
		}
		status(t, dry, false, "dry run")
	})
	o = options(cluster.RESTConfig())
	o.CanaryTimeout, o.CanaryInterval = 2*time.Second, 2*time.Second
	before := worldOn(t, o.Config, nil)
	left := before.make(thing{name: "left", owners: []metav1.OwnerReference{lost()}})
	collector := run(t, o)
	w := worldOn(t, o.Config, collector)
	before.collector = collector
	status(t, collector, true, "collecting")
	before.goes(left) // G-54: from before the collector was there
	w.goes(w.make(thing{name: "dependent", owners: []metav1.OwnerReference{lost()}}))
	restart(t, cluster)
	status(t, collector, false, "another garbage collector is running")
	restart(t, cluster, noCollector...)
	status(t, collector, true, "collecting")
	w.goes(w.make(thing{name: "again", owners: []metav1.OwnerReference{lost()}}))
}

// restart runs the controller manager with other controllers.
func restart(t *testing.T, cluster *devcluster.Cluster, controllers ...string) {
	t.Helper()
	if err := cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartControllerManager(t.Context(), controllers...); err != nil {
		t.Fatal(err)
	}
}
