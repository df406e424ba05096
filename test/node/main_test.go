// Package node runs Gleaner on a control plane with a node, so that deleted Pods
// have containers, which take time to end.
//
// Where no node can run, its tests are skipped.
package node

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/devcluster/node"
	"github.com/gleaner-dev/gleaner/devcluster/node/nodetest"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
	"github.com/gleaner-dev/gleaner/test/program"
)

// auditPolicy logs who deletes Pods, and with which options.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [delete]
  resources: [{group: "", resources: [pods]}]
- level: None
`

// gleaner is the program, for the image of config/node.
var gleaner = program.Gleaner{Flags: []string{"-ldflags=-s -w"}}

// shared is the control plane and its node, created on first use. The tests run in
// sequence, each with its own collector, except for those of boxes.
var shared struct {
	once    sync.Once
	folder  string
	cluster *devcluster.Cluster
	node    *node.Node
	err     error
}

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	log := logr.Discard()
	if os.Getenv("GLEANER_TEST_LOG") != "" {
		log = zap.New(zap.UseDevMode(true))
	}
	ctrl.SetLogger(log)
	shared.folder, shared.err = os.MkdirTemp("", "gleaner-node-")
	devtest.Run(m, devcluster.Options{}, cleanUp)
}

func cleanUp() error {
	err := gleaner.Remove()
	if shared.node != nil {
		err = errors.Join(err, shared.node.Stop())
	}
	if shared.cluster != nil {
		err = errors.Join(err, shared.cluster.Stop())
	}
	return errors.Join(err, os.RemoveAll(shared.folder))
}

// startCluster starts the control plane and its node, once.
func startCluster(t *testing.T) {
	t.Helper()
	nodetest.Need(t)
	shared.once.Do(func() {
		if shared.err == nil {
			shared.err = startClusterAndNode(t)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
}

func startClusterAndNode(t *testing.T) (err error) {
	t.Helper()
	// The first build takes minutes; without output it would look like a test that hangs.
	if _, err := devcluster.Build(t.Context(), os.Stderr); err != nil {
		return err
	}
	if err := node.Build(t.Context(), os.Stderr); err != nil {
		return err
	}
	policy := filepath.Join(shared.folder, "audit.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	shared.cluster, err = devcluster.Start(t.Context(), devcluster.Options{
		Controllers:    devcluster.WithoutCollector(),
		APIServerFlags: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog()},
	})
	if err != nil {
		return err
	}
	shared.node, err = node.Start(t.Context(), shared.cluster, node.Options{})
	return err
}

func auditLog() string { return filepath.Join(shared.folder, "audit.log") }
