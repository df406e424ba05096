// Package rusttest has tests build modules in Rust.
package rusttest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// RequiredVariable has [Require] fail, instead of skip, if it is "required".
const RequiredVariable = "GLEANER_TEST_RUST"

// tools are the programs that compile and test a crate.
var tools = []string{"cargo", "rustc", "rustdoc"}

// folders are those in which Require looks: the PATH, and that of Debian's packages. Another Rust may come
// first on the PATH, and lack the target.
func folders() []string { return append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin") }

// Require skips the test if there is no Rust with which modules can be compiled. It puts one that there is first on the
// PATH, and reads the files of the given folders, so that go test runs the test again when one has changed.
func Require(t *testing.T, sources ...string) {
	t.Helper()
	for _, folder := range sources {
		read(t, folder)
	}
	for _, folder := range folders() {
		if !compilesModules(folder) {
			continue
		}
		links := t.TempDir()
		for _, tool := range tools {
			if err := os.Symlink(filepath.Join(folder, tool), filepath.Join(links, tool)); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", links+string(filepath.ListSeparator)+os.Getenv("PATH"))
		t.Setenv("RUSTFLAGS", "")                        // which restores it at the end
		if err := os.Unsetenv("RUSTFLAGS"); err != nil { // an empty one would replace other settings, too
			t.Fatal(err)
		}
		return
	}
	const missing = "there is no Rust with the target wasm32-unknown-unknown: on Debian and Ubuntu run \"apt-get install cargo rustc libstd-rust-dev-wasm32 lld\""
	if os.Getenv(RequiredVariable) == "required" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// Linker returns the variable that gives Cargo a linker, as gleaner module build does: Debian's Rust has none of its own.
func Linker() []string {
	if _, err := exec.LookPath("lld"); err != nil {
		return nil
	}
	return []string{"CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=lld"}
}

// compilesModules reports whether the tools are in a folder, and know the target.
func compilesModules(folder string) bool {
	for _, tool := range tools {
		if _, err := exec.LookPath(filepath.Join(folder, tool)); err != nil {
			return false
		}
	}
	libraries, err := exec.Command(filepath.Join(folder, "rustc"), "--print", "target-libdir", "--target", "wasm32-unknown-unknown").Output()
	if err != nil {
		return false
	}
	_, err = os.Stat(strings.TrimSpace(string(libraries)))
	return err == nil
}

// read reads all source files.
func read(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && (filepath.Ext(name) == ".rs" || filepath.Ext(name) == ".toml") {
			_, err = os.ReadFile(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
