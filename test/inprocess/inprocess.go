// Package inprocess runs Gleaner in the test's process: it creates the
// CustomResourceDefinitions and runs a collector with policies and finalizers.
//
// It does not parse flags, elect a leader or serve endpoints.
package inprocess

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/policies/builtin"
	"github.com/gleaner-dev/gleaner/policies/worker"
)

// timeout is the timeout for types to be served.
const timeout = 2 * time.Minute

// CreateCRDs creates the CustomResourceDefinitions, and waits until they are served.
func CreateCRDs(t testing.TB, config *rest.Config) error {
	t.Helper()
	definitions, err := crds.Definitions()
	if err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, d := range definitions {
		_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", d.Name, err)
		}
	}
	devtest.Eventually(t, timeout, func() error {
		for _, d := range definitions {
			for _, v := range d.Spec.Versions {
				path := "/apis/" + d.Spec.Group + "/" + v.Name + "/" + d.Spec.Names.Plural
				if err := client.ApiextensionsV1().RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return nil
}

// OperatorConfig returns an identity for a collector of its own. The collector recognizes its own
// writes by it, and its objects get no finalizer.
func OperatorConfig(cluster *devcluster.Cluster) (*rest.Config, error) {
	return cluster.ConfigFor("gleaner", "system:masters")
}

// Options returns the options of a cluster's only collector.
func Options(config *rest.Config) run.Options {
	return run.Options{
		Config: config, Namespace: metav1.NamespaceSystem, Workers: 20,
		DiscoveryInterval: 30 * time.Second, SweepInterval: time.Minute,
		CanaryInterval: time.Minute, SyncTimeout: 30 * time.Second, ObserveTimeout: 10 * time.Second,
		FinalizerNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, // the tests' servers
		Ignored:           catalog.DefaultIgnored(), Evaluator: builtin.Policy{},
		Metrics: prometheus.NewRegistry(), Log: ctrl.Log,
		// On a busy machine, workers with a lower priority than the API servers of other tests
		// would take minutes to start.
		Sandbox: worker.Config{KeepPriority: true},
	}
}

// RunCollector runs a collector, and further runnables created from it, until stop is called. Stop
// waits until they have ended. Without a call of stop they run until the process ends.
func RunCollector(o run.Options, also ...func(*run.Operator) (manager.Runnable, error)) (collector *run.Operator, stop func() error, err error) {
	if collector, err = run.New(o); err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(o.Config, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: ctrl.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	if err := collector.AddTo(mgr); err != nil {
		return nil, nil, err
	}
	for _, of := range also {
		runnable, err := of(collector)
		if err == nil {
			err = mgr.Add(runnable)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background()) // outlives the test that starts it
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return collector, func() error {
		cancel()
		return <-done
	}, nil
}

// RunForTest runs a collector until the test ends.
func RunForTest(t testing.TB, o run.Options) *run.Operator {
	t.Helper()
	collector, stop, err := RunCollector(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("collector: %v", err)
		}
	})
	return collector
}
