package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/module"
)

// fakeTinyGo puts a program called tinygo first on the PATH, which writes its arguments
// and folder into the file that is returned, and does what the script says: in it
// $out is the file that is to be written.
func fakeTinyGo(t *testing.T, script string) (reported string) {
	t.Helper()
	folder := t.TempDir()
	reported = filepath.Join(folder, "told")
	text := fmt.Sprintf("#!/bin/sh\necho \"$PWD: $*\" >> '%s'\nwhile [ $# -gt 1 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n%s\n", reported, script)
	if err := os.WriteFile(filepath.Join(folder, "tinygo"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	return reported
}

// builtWith runs gleaner module build --tinygo.
func builtWith(t *testing.T, folder string) (out, log string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := rootCommand()
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs([]string{"module", "build", "--tinygo", folder})
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestModuleBuild_TinyGoFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "module.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", file, ".")
	build.Dir, build.Env = keepData, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	reported := fakeTinyGo(t, "cp '"+file+"' \"$out\"")
	folder := folderOf(t, map[string]string{"go.mod": "module example.com/a\n\ngo 1.23\n", "main.go": "package main\n\nfunc main() {}\n"})
	out, log, err := builtWith(t, folder)
	if err != nil {
		t.Fatal(err, log)
	}
	containsAll(t, out, filepath.Join(folder, module.BuiltModule)+": ", "hooks   propagate, collect, validate")
	text, err := os.ReadFile(reported)
	if err != nil {
		t.Fatal(err)
	}
	in, line, _ := strings.Cut(strings.TrimSpace(string(text)), ": ")
	if real, err := filepath.EvalSymlinks(folder); err != nil || in != real && in != folder {
		t.Errorf("it ran in %s, want %s", in, folder)
	}
	if !strings.HasPrefix(line, "build -target=wasip1 -buildmode=c-shared -scheduler=none -gc=leaking -opt=2 -no-debug -o ") || !strings.HasSuffix(line, " .") {
		t.Errorf("it ran tinygo %s", line)
	}
}

func TestModuleBuild_ExplainsUnsupportedGoVersion(t *testing.T) {
	const requires = "requires go version 1.19 through 1.23, got go1.26"
	fakeTinyGo(t, "echo 'error: "+requires+"' >&2; exit 1")
	folder := folderOf(t, map[string]string{"go.mod": "module example.com/a\n\ngo 1.23\n", "main.go": "package main\n\nfunc main() {}\n"})
	_, log, err := builtWith(t, folder)
	if err == nil {
		t.Fatal("it was built")
	}
	containsAll(t, log, requires)
	containsAll(t, err.Error(), "does not support the Go version on the PATH or in go.mod", "GOTOOLCHAIN=local", "write go 1.23 in go.mod")

	fakeTinyGo(t, "echo 'main.go:3:15: undefined: oh'; exit 1")
	_, log, err = builtWith(t, folder)
	if err == nil {
		t.Fatal("it was built")
	}
	containsAll(t, log, "main.go:3:15: undefined: oh")
	containsAll(t, err.Error(), "tinygo build: exit status 1")
}

// What is scaffolded is also for TinyGo, whose int has 32 bits and whose Go is older.
func TestModuleNew_Go_CompilesWith32BitsAndGo123(t *testing.T) {
	newModuleFolder(t, "go", "finalize")
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, string(mod), "\ngo 1.23\n")
	vet := exec.CommandContext(t.Context(), "go", "vet", "./...")
	vet.Env = append(os.Environ(), "GOARCH=386", "CGO_ENABLED=0", "GOWORK=off")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
