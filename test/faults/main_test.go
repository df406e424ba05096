// Package faults runs the collector against a real control plane during
// failures of the API server, the network, a type or the operator
// itself. In every test an auditor watches all objects independently of the collector, and
// reports each object that was deleted or released while an owner of it existed.
//
// Most tests share one control plane, one collector and the proxy between the
// two. Faults are limited to the test's own namespace or its own type.
// Tests that stop a component have a control plane of their own.
package faults

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/inprocess"
	"github.com/gleaner-dev/gleaner/test/program"
)

// shared is the environment that most tests share, created on first use.
var shared struct {
	start sync.Once
	stage *testbed
	err   error
}

// gleaner is the program that the tests share.
var gleaner program.Gleaner

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log) // clients log every fault
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("4") // most of these tests wait most of the time
	}
	devtest.Run(m, devcluster.Options{Controllers: devcluster.WithoutCollector()}, gleaner.Remove)
}

// testbed is a control plane with a collector that reaches it through a proxy.
type testbed struct {
	cluster   *devcluster.Cluster
	admin     *rest.Config // not through the proxy
	proxy     *faultProxy
	collector *run.Operator
}

// sharedTestbed returns the shared environment, which exists until the process ends.
func sharedTestbed(t *testing.T) *testbed {
	t.Helper()
	cluster := devtest.Shared(t)
	shared.start.Do(func() {
		shared.stage = &testbed{cluster: cluster, admin: cluster.RESTConfig()}
		if shared.stage.proxy, shared.err = startProxy(cluster); shared.err == nil {
			shared.stage.collector, _, shared.err = inprocess.RunCollector(options(shared.stage.proxy.Config()))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.stage
}

// options are the collector options of tests.
func options(config *rest.Config) run.Options {
	o := inprocess.Options(config)
	o.Ignored[ignoredType] = struct{}{}
	return o
}

// ignoredType is an ignored type: an owner of it
// is read for each decision.
var ignoredType = schema.GroupResource{Group: "unwatched.gleaner.dev", Resource: "unwatched"}

// newTestbed creates a control plane, a proxy and a collector for one test.
func newTestbed(t *testing.T, o devcluster.Options) *testbed {
	t.Helper()
	s := &testbed{cluster: newCluster(t, o)}
	s.admin = s.cluster.RESTConfig()
	var err error
	if s.proxy, err = startProxy(s.cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.proxy.Close)
	s.collector = inprocess.RunForTest(t, options(s.proxy.Config()))
	return s
}

// newCluster creates a control plane for one test.
func newCluster(t *testing.T, o devcluster.Options) *devcluster.Cluster {
	t.Helper()
	o.Controllers = devcluster.WithoutCollector()
	return devtest.Start(t, o)
}
