// Package integration runs the collector against a real control plane without the
// built-in garbage collector.
package integration

import (
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	devtest.Run(m, devcluster.Options{Controllers: devcluster.WithoutCollector()})
}

var shared struct {
	once      sync.Once
	collector *run.Operator
	err       error
}

// sharedCollector returns the collector that the package's tests share. It runs until the
// process ends.
func sharedCollector(t *testing.T) *run.Operator {
	t.Helper()
	config := devtest.Shared(t).RESTConfig()
	shared.once.Do(func() { shared.collector, _, shared.err = inprocess.RunCollector(inprocess.Options(config)) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.collector
}
