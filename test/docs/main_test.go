// Package docs tests the documents: each command in them is run, in order, against
// a real control plane, and each link within the tree must have an existing target.
//
// A code block marked sh must succeed. In a block marked console the lines that
// begin with $ are run, and their output must be the lines below them; … stands
// for variable text. The blocks that are not run are listed in exceptions_test.go, with
// the reason, and the test that runs something similar.
package docs

import (
	"fmt"
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const root = "../.."

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "gleaner-docs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	trees.folder = folder
	devtest.Run(m, devcluster.Options{}, sharedDev.stop, func() error { return os.RemoveAll(folder) })
}
