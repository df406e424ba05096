// Package preview compares previews with what actually happens, on a real
// control plane without the built-in garbage collector.
package preview

import (
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	ctrl.SetLogger(logr.Discard())
	devtest.Run(m, devcluster.Options{Controllers: devcluster.WithoutCollector()})
}

const timeout = 2 * time.Minute

// shared is the collector that the tests share, created on first use. It runs until
// the process ends.
var shared struct {
	once      sync.Once
	collector *run.Operator
	err       error
}

func sharedCollector(t *testing.T) *run.Operator {
	t.Helper()
	config := devtest.Shared(t).RESTConfig()
	shared.once.Do(func() {
		if shared.err = inprocess.CreateCRDs(t, config); shared.err == nil {
			shared.collector, _, shared.err = inprocess.RunCollector(inprocess.Options(config))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.collector
}
