package rust_test

import (
	"os/exec"
	"testing"

	"github.com/gleaner-dev/gleaner/sdk/rust/rusttest"
)

// The tests of the crate, its documentation and its example are Rust's.
func TestCrate_PassesItsTests(t *testing.T) {
	rusttest.Require(t, ".")
	t.Setenv("CARGO_TARGET_DIR", t.TempDir())
	for _, folder := range []string{".", "examples/keep-data"} {
		cmd := exec.CommandContext(t.Context(), "cargo", "test", "--offline", "--quiet")
		cmd.Dir = folder
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("cargo test in %s: %v\n%s", folder, err, output)
		}
	}
}
