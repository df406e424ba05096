// Package examples runs the examples as their READMEs say: their own tests, and
// what they do on a real control plane with Gleaner.
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
	"github.com/gleaner-dev/gleaner/test/inside"
)

const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	devtest.Run(m, devcluster.Options{Controllers: []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}})
}

// shared is what the tests share, made when the first of them asks for it.
var shared struct {
	once    sync.Once
	cluster *devcluster.Cluster
	err     error
}

// operated returns a control plane with Gleaner at work, as "gleaner dev" starts
// one. Both end with the process.
func operated(t *testing.T) *devcluster.Cluster {
	t.Helper()
	cluster := devtest.Shared(t)
	shared.once.Do(func() {
		if shared.err = inside.Define(t, cluster.RESTConfig()); shared.err == nil {
			shared.err = operate(cluster)
		}
		shared.cluster = cluster
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// operate starts the operator, with an identity of its own: what it writes itself
// gets no finalizer.
func operate(cluster *devcluster.Cluster) error {
	config, err := inside.Operator(cluster)
	if err == nil {
		_, _, err = inside.Run(inside.Options(config)) // ends with the process; a test that needs it says what is missing
	}
	return err
}
