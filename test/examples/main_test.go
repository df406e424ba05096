// Package examples tests the examples as described in their READMEs: their own tests, and
// their effects on a real control plane with Gleaner.
package examples

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

const timeout = 2 * time.Minute

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	devtest.Run(m, devcluster.Options{Controllers: devcluster.WithoutCollector()})
}

// shared is the control plane that the tests share, created on first use.
var shared struct {
	once    sync.Once
	cluster *devcluster.Cluster
	err     error
}

// sharedCluster returns a control plane with an operator, as started by "gleaner-dev dev".
// Both run until the process ends.
func sharedCluster(t *testing.T) *devcluster.Cluster {
	t.Helper()
	cluster := devtest.Shared(t)
	shared.once.Do(func() {
		if shared.err = inprocess.CreateCRDs(t, cluster.RESTConfig()); shared.err == nil {
			shared.err = startOperator(cluster)
		}
		shared.cluster = cluster
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// startOperator starts the operator with its own identity, so that the objects that it writes
// get no finalizer.
func startOperator(cluster *devcluster.Cluster) error {
	config, err := inprocess.OperatorConfig(cluster)
	if err != nil {
		return err
	}
	o := inprocess.Options(config)
	if o.Webhook, err = inprocess.Endpoint(cluster); err == nil {
		_, _, err = inprocess.RunCollector(o, inprocess.Webhooks(o.Webhook)) // runs until the process ends
	}
	return err
}
