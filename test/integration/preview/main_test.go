// Package preview compares what a preview says with what then happens, on a real
// control plane whose own collector is switched off.
package preview

import (
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/inside"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	ctrl.SetLogger(logr.Discard())
	devtest.Run(m, devcluster.Options{Controllers: []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}})
}

const patience = 2 * time.Minute

// shared is what the tests share, made when the first of them asks for it. It ends
// with the process.
var shared struct {
	once      sync.Once
	collector *loop.Loop
	err       error
}

func collector(t *testing.T) *loop.Loop {
	t.Helper()
	config := devtest.Shared(t).RESTConfig()
	shared.once.Do(func() {
		if shared.err = inside.Define(t, config); shared.err == nil {
			shared.collector, _, shared.err = inside.Run(inside.Options(config))
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.collector
}
