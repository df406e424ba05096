package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// standIn puts a program called tinygo first on the PATH, which writes its arguments
// and folder into the file that is returned, and does what the script says: in it
// $out is the file that is to be written.
func standIn(t *testing.T, script string) (told string) {
	t.Helper()
	folder := t.TempDir()
	told = filepath.Join(folder, "told")
	text := fmt.Sprintf("#!/bin/sh\necho \"$PWD: $*\" >> '%s'\nwhile [ $# -gt 1 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n%s\n", told, script)
	if err := os.WriteFile(filepath.Join(folder, "tinygo"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	return told
}

// builtWith runs gleaner module build --tinygo.
func builtWith(t *testing.T, folder string) (out, log string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := root()
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs([]string{"module", "build", "--tinygo", folder})
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestModuleBuild_RunsTinyGoAsItSuitsModules(t *testing.T) {
	module := filepath.Join(t.TempDir(), "module.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", module, ".")
	build.Dir, build.Env = keepData, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	told := standIn(t, "cp '"+module+"' \"$out\"")
	folder := folderOf(t, map[string]string{"go.mod": "module example.com/a\n\ngo 1.23\n", "main.go": "package main\n\nfunc main() {}\n"})
	out, log, err := builtWith(t, folder)
	if err != nil {
		t.Fatal(err, log)
	}
	says(t, out, filepath.Join(folder, builtModule)+": ", "hooks   propagate, collect, validate")
	text, err := os.ReadFile(told)
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

func TestModuleBuild_SaysWhatTinyGoDoesNotTake(t *testing.T) {
	const requires = "requires go version 1.19 through 1.23, got go1.26"
	standIn(t, "echo 'error: "+requires+"' >&2; exit 1")
	folder := folderOf(t, map[string]string{"go.mod": "module example.com/a\n\ngo 1.23\n", "main.go": "package main\n\nfunc main() {}\n"})
	_, log, err := builtWith(t, folder)
	if err == nil {
		t.Fatal("it was built")
	}
	says(t, log, requires)
	says(t, err.Error(), "does not take the Go that comes first on the PATH", "GOTOOLCHAIN=local", "write go 1.23 into go.mod")

	standIn(t, "echo 'main.go:3:15: undefined: oh'; exit 1")
	_, log, err = builtWith(t, folder)
	if err == nil {
		t.Fatal("it was built")
	}
	says(t, log, "main.go:3:15: undefined: oh")
	says(t, err.Error(), "tinygo build: exit status 1")
}

// What is scaffolded is also for TinyGo, whose int has 32 bits and whose Go is older.
func TestModuleNew_OfGoCompilesWith32BitsAndGo123(t *testing.T) {
	anew(t, "go", "finalize")
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	says(t, string(mod), "\ngo 1.23\n")
	vet := exec.CommandContext(t.Context(), "go", "vet", "./...")
	vet.Env = append(os.Environ(), "GOARCH=386", "CGO_ENABLED=0", "GOWORK=off")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
