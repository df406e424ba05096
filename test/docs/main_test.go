// Package docs tests the documents: each command in them is run, in order, against
// a real control plane, and each link within the tree must have an existing target.
//
// A code block marked sh must succeed. In a block marked console the lines that
// begin with $ are run, and their output must be the lines below them; … stands
// for variable text. The blocks that are not run are listed in exceptions_test.go, with
// the reason, and the test that runs something similar.
package docs

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

const root = "../.."

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "gleaner-docs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	trees.folder = folder
	code := m.Run()
	if err := errors.Join(sharedDev.stop(), os.RemoveAll(folder)); err != nil {
		fmt.Fprintln(os.Stderr, "clean up:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
