package policytest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gleaner-dev/gleaner/sdk/rust/rusttest"
)

// The example of the SDK for Rust answers the same cases, without WASI.
func TestRustModule_PassesCases(t *testing.T) {
	g := newGuest(t, rustModule(t))
	checkKeepData(t, g)
	if imports := g.compiled.ImportedFunctions(); len(imports) != len(g.imports()) {
		t.Errorf("it has %d imports, and %d of the host", len(imports), len(g.imports()))
	}
	checkLargeRequests(t, g)
	checkUnknownSetting(t, g, `error: decode settings: unknown field "wiat"`)
}

// rustModule builds the example, for Wasm.
func rustModule(t *testing.T) []byte {
	t.Helper()
	const example = "../../sdk/rust/examples/keep-data"
	rusttest.Require(t, "../../sdk/rust/src", example)
	target := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "cargo", "build", "--offline", "--quiet", "--release", "--target", "wasm32-unknown-unknown")
	cmd.Dir = example
	cmd.Env = slices.Concat(os.Environ(), []string{"CARGO_TARGET_DIR=" + target}, rusttest.Linker())
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	code, err := os.ReadFile(filepath.Join(target, "wasm32-unknown-unknown", "release", "keep_data.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return code
}
