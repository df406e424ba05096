// Package docs holds the documents to what they say: each command of the README and
// the tutorials is run, in order, against a real control plane, and each link leads
// somewhere.
//
// A block of code marked sh has to succeed. In one marked console the lines that
// begin with $ are typed, and what they print has to be what is below them; … stands
// for what differs from time to time. A block that takes too long here is marked by
// a comment before it,
//
//	<!-- run by FILE: TEXT | TEXT -->
//
// which names the file of a test or of CI that runs it, and the texts there that do.
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
	if err := errors.Join(development.stop(), os.RemoveAll(folder)); err != nil {
		fmt.Fprintln(os.Stderr, "clean up:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}
