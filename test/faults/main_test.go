// Package faults runs the collector against a real control plane while
// something fails: the API server, the network before it, a type, the operator
// itself. A witness looks on in every test, without the collector's help, and
// objects to each object that was deleted, or let go, while an owner of it stood.
//
// Most tests share one control plane, one collector and the proxy between the
// two. Each has its faults happen in its own namespace, or to its own type.
// Those that end something have a control plane of their own.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
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

// shared is what most tests share, made when the first of them asks for it.
var shared struct {
	start sync.Once
	stage *stage
	err   error
}

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log) // clients complain of every fault
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("4") // most of these tests wait most of the time
	}
	devtest.Run(m, devcluster.Options{Controllers: noCollector})
}

// stage is a control plane with a collector that reaches it through a proxy.
type stage struct {
	cluster   *devcluster.Cluster
	admin     *rest.Config // straight to the API server
	proxy     *gate
	collector *loop.Loop
}

// sharedStage returns the stage that most tests share. It ends with the process.
func sharedStage(t *testing.T) *stage {
	t.Helper()
	cluster := devtest.Shared(t)
	shared.start.Do(func() {
		shared.stage = &stage{cluster: cluster, admin: cluster.RESTConfig()}
		if shared.stage.proxy, shared.err = startProxy(cluster); shared.err == nil {
			shared.stage.collector, _, shared.err = run(options(shared.stage.proxy.Config()))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.stage
}

// options are those that tests run the collector with: short intervals, and no
// canary, which has tests elsewhere.
func options(config *rest.Config) loop.Options {
	ignored := catalog.DefaultIgnored()
	ignored[unwatched] = struct{}{}
	return loop.Options{
		Config: config, Namespace: "kube-system", Workers: 20,
		DiscoveryInterval: 30 * time.Second, SweepInterval: time.Minute,
		CanaryInterval: time.Minute, SyncTimeout: 30 * time.Second,
		Ignored: ignored, Evaluator: builtin.Policy{},
		Metrics: prometheus.NewRegistry(), Log: ctrl.Log,
	}
}

// unwatched is a type that may be defined, and is not watched: an owner of it
// has to be read for each decision.
var unwatched = schema.GroupResource{Group: "unwatched.gleaner.dev", Resource: "unwatched"}

// run runs a collector until stop is called, which waits for its end.
func run(o loop.Options) (collector *loop.Loop, stop func() error, err error) {
	collector, err = loop.New(o)
	if err != nil {
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
	ctx, cancel := context.WithCancel(context.Background()) // outlives the test that starts it
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	return collector, func() error {
		cancel()
		return <-done
	}, nil
}

// ownStage returns a control plane, a proxy and a collector of a test's own.
func ownStage(t *testing.T, o devcluster.Options) *stage {
	t.Helper()
	s := &stage{cluster: ownCluster(t, o)}
	s.admin = s.cluster.RESTConfig()
	var err error
	if s.proxy, err = startProxy(s.cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.proxy.Close)
	collector, end, err := run(options(s.proxy.Config()))
	if err != nil {
		t.Fatal(err)
	}
	s.collector = collector
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Errorf("collector: %v", err)
		}
	})
	return s
}

// ownCluster returns a control plane that a test may do with as it likes.
func ownCluster(t *testing.T, o devcluster.Options) *devcluster.Cluster {
	t.Helper()
	o.Controllers = noCollector
	_, buildErr := devcluster.Build(t.Context(), os.Stderr)
	cluster, err := devcluster.Start(t.Context(), o)
	if err = errors.Join(buildErr, err); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}
