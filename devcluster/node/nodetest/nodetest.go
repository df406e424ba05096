// Package nodetest gives tests a node, or has them skipped where there can be none.
package nodetest

import (
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/node"
)

// Need skips the test if no node can run here, or fails it where that is required, as in CI.
func Need(t testing.TB) {
	t.Helper()
	err := node.CheckRequirements()
	switch {
	case err == nil:
	case os.Getenv(node.RequiredVariable) == "required":
		t.Fatalf("%s=required: %v", node.RequiredVariable, err)
	default:
		t.Skip(err)
	}
}

// Start gives a cluster a node, which is stopped with the test. See Need.
func Start(t testing.TB, cluster *devcluster.Cluster, opts node.Options) *node.Node {
	t.Helper()
	Need(t)
	n, err := node.Start(t.Context(), cluster, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}
