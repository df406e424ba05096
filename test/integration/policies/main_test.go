// Package policies runs the collector with policies against a real control plane
// whose own collector is switched off.
package policies

import (
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/inside"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	devtest.Run(m, devcluster.Options{Controllers: controllers})
}

// controllers are those of the control planes.
var controllers = []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}

// shared is what the tests share, made when the first of them asks for it.
var shared struct {
	once      sync.Once
	collector *loop.Loop
	err       error
}

// collector returns the collector that the tests share. It ends with the process.
func collector(t *testing.T) *loop.Loop {
	t.Helper()
	config := devtest.Shared(t).RESTConfig()
	shared.once.Do(func() {
		if shared.err = inside.Define(t, config); shared.err == nil {
			shared.collector, _, shared.err = run(inside.Options(operator(t)))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.collector
}

// operator is whom the collector works as: what it writes itself is told apart by
// that.
func operator(t *testing.T) *rest.Config {
	t.Helper()
	config, err := inside.Operator(devtest.Shared(t))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func (o *operation) options() loop.Options { return inside.Options(o.config) }

// run runs a collector until stop is called, which waits for its end.
func run(o loop.Options) (collector *loop.Loop, stop func() error, err error) {
	return inside.Run(o)
}
