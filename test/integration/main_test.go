// Package integration runs the collector against a real control plane whose
// own collector is switched off.
package integration

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/policies/builtin"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
)

// noCollector are the controllers that run: all but the built-in collector.
var noCollector = []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	devtest.Run(m, devcluster.Options{Controllers: noCollector})
}

// options are those that tests run the collector with: short intervals, and no
// canary, which has tests of its own.
func options(config *rest.Config) loop.Options {
	return loop.Options{
		Config: config, Namespace: "kube-system", Workers: 20,
		DiscoveryInterval: 30 * time.Second, SweepInterval: time.Minute,
		CanaryInterval: time.Minute, SyncTimeout: 30 * time.Second,
		Ignored: catalog.DefaultIgnored(), Evaluator: builtin.Policy{},
		Metrics: prometheus.NewRegistry(), Log: ctrl.Log,
	}
}

// start runs a collector until stop is called, which waits for its end.
func start(o loop.Options) (collector *loop.Loop, stop func(), err error) {
	collector, err = loop.New(o)
	if err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(o.Config, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Logger: ctrl.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	if err := collector.AddTo(mgr); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background()) // outlives the test that starts it
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return collector, func() {
		cancel()
		if err := <-done; err != nil {
			fmt.Fprintln(os.Stderr, "collector:", err)
		}
	}, nil
}

var shared struct {
	once      sync.Once
	collector *loop.Loop
	err       error
}

// gleaner returns the collector that the package's tests share. It ends with
// the process.
func gleaner(t *testing.T) *loop.Loop {
	t.Helper()
	config := devtest.Shared(t).RESTConfig()
	shared.once.Do(func() { shared.collector, _, shared.err = start(options(config)) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.collector
}
