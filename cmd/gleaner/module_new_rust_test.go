package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gleaner-dev/gleaner/sdk/rust/rusttest"
)

// One folder is built with the sources of each hook, so that the SDK is compiled once.
func TestModuleNew_Rust_PassesItsTests(t *testing.T) {
	rusttest.Require(t, "../../sdk/rust/src")
	newModuleFolder(t, "rust", "finalize")
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, hook := range newHooks {
		t.Run(hook, func(t *testing.T) {
			newModuleFolder(t, "rust", hook)
			for _, name := range []string{"src/lib.rs", "cases.yaml", "settings.schema.json"} {
				text, err := os.ReadFile(name)
				if errors.Is(err, fs.ErrNotExist) { // policies have no settings
					err = os.Remove(filepath.Join(folder, name))
				} else if err == nil {
					err = os.WriteFile(filepath.Join(folder, name), text, 0o644)
				}
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
			}
			checkResources(t, "module.wasm.gz")
			t.Chdir(folder)
			if output, err := exec.CommandContext(t.Context(), "cargo", "test", "--offline", "--quiet").CombinedOutput(); err != nil {
				t.Fatalf("cargo test: %v\n%s", err, output)
			}
			out, err := execute(t, "module", "build")
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			containsAll(t, out, "module.wasm.gz", "hooks   "+hook, "digest: ", "It fits into a ConfigMap.")
			if out, err = execute(t, "test"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			containsAll(t, out, "ok    cases.yaml")
		})
	}

	// The module has neither the name of the folder nor the time in it.
	newModuleFolder(t, "rust", newHooks[len(newHooks)-1])
	if out, err := execute(t, "module", "build"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	here, err := os.ReadFile("module.wasm.gz")
	if err != nil {
		t.Fatal(err)
	}
	there, err := os.ReadFile(filepath.Join(folder, "module.wasm.gz"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(here, there) {
		t.Error("the same sources have another module in another folder")
	}
}

func TestModuleBuild_Rust_SaysWhatIsMissing(t *testing.T) {
	newModuleFolder(t, "rust", "collect")
	_, err := execute(t, "module", "build", "--tinygo")
	wantUsageError(t, err, "omit --tinygo")

	programs := t.TempDir()
	t.Setenv("PATH", programs)
	for _, step := range []struct {
		name, script string // of a program, which is there from now on
		want         []string
	}{
		{"", "", []string{"cargo not found on the PATH", "https://rustup.rs"}},
		{"cargo", "exit 1", []string{"rustc not found on the PATH"}},
		{"rustc", "echo /nonexistent", []string{"rustup target add wasm32-unknown-unknown", "libstd-rust-dev-wasm32"}},
		{"rustc", "echo " + programs, []string{"no linker for WebAssembly", "apt-get install lld"}},
		{"lld", "exit 1", []string{"cargo build: exit status 1"}},
		{"cargo", `echo '{"reason":"build-finished","success":true}'`, []string{`write crate-type = ["cdylib"] under [lib] in Cargo.toml`}},
		{"cargo", "echo no JSON", []string{"read messages of cargo"}},
	} {
		if step.name != "" {
			if err := os.WriteFile(filepath.Join(programs, step.name), []byte("#!/bin/sh\n"+step.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		_, err := execute(t, "module", "build")
		if err == nil {
			t.Fatalf("it is built, with %s", step.name)
		}
		containsAll(t, err.Error(), step.want...)
	}
}
