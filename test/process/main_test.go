// Package process runs the gleaner command as a separate process
// against a real control plane without the built-in garbage collector. It tests what the
// process serves and logs, and how it starts and ends. What it
// collects is tested in test/integration.
//
// Collectors on one control plane would collect each other's objects, so tests run in
// sequence, except those that start a control plane of their own.
package process

import (
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
)

// gleaner is the program that the tests share.
var gleaner program.Gleaner

func TestMain(m *testing.M) {
	devtest.Run(m, devcluster.Options{Controllers: devcluster.WithoutCollector()}, gleaner.Remove)
}

// newCluster starts a control plane for one test.
func newCluster(t *testing.T) *devcluster.Cluster {
	t.Helper()
	return devtest.Start(t, devcluster.Options{Controllers: devcluster.WithoutCollector()})
}
