package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/module"
)

const keepData = "../../sdk/go/examples/keep-data"

func TestModuleBuild_Go_IsReproducible(t *testing.T) {
	t.Setenv("GOWORK", "off")
	var files [][]byte
	for _, name := range []string{"a.wasm.gz", "b.wasm.gz"} {
		file := filepath.Join(t.TempDir(), name)
		out, err := execute(t, "module", "build", keepData, "-o", file)
		if err != nil {
			t.Fatal(err)
		}
		containsAll(t, out, file, "hooks   propagate, collect, validate", "bytes of WebAssembly", "digest: ", "gleaner module push "+file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, text)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("a second build has made another file")
	}
	plain := filepath.Join(t.TempDir(), "module.wasm")
	if out, err := execute(t, "module", "build", keepData, "-o", plain); err != nil {
		t.Fatal(err)
	} else {
		containsAll(t, out, "too large for a ConfigMap")
	}
	if text, err := os.ReadFile(plain); err != nil || !bytes.HasPrefix(text, []byte("\x00asm")) {
		t.Errorf("it begins with %q, %v", text[:min(len(text), 4)], err)
	}
}

// folderOf has these files, by name.
func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestModuleBuild_Failure_KeepsExistingFile(t *testing.T) {
	t.Setenv("GOWORK", "off")
	const mod = "module example.com/a\n\ngo 1.24\n"
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"what does not compile":   {map[string]string{"go.mod": mod, "main.go": "package main\n\nfunc main() { oh }\n"}, "go build: exit status 1"},
		"what answers nothing":    {map[string]string{"go.mod": mod, "main.go": "package main\n\nfunc main() {}\n"}, "it exports no hook"},
		"Rego that does not":      {map[string]string{"policy.rego": "package gleaner\n\ncollect := oh\n"}, "policy.rego:3"},
		"Rego of another package": {map[string]string{"policy.rego": "package other\n"}, "package gleaner"},
	} {
		t.Run(name, func(t *testing.T) {
			c.files[module.BuiltModule] = "as it was"
			folder := folderOf(t, c.files)
			_, err := execute(t, "module", "build", folder)
			if err == nil {
				t.Fatal("nothing is wrong with it")
			}
			containsAll(t, err.Error(), c.says)
			if text, err := os.ReadFile(filepath.Join(folder, module.BuiltModule)); err != nil || string(text) != "as it was" {
				t.Errorf("the file is %q, %v", text, err)
			}
			entries, err := os.ReadDir(folder)
			if err != nil || len(entries) != len(c.files) {
				t.Errorf("in the folder are %v, %v", entries, err)
			}
		})
	}
}

func TestModuleBuild_ShowsCompilerOutput(t *testing.T) {
	t.Setenv("GOWORK", "off")
	folder := folderOf(t, map[string]string{"go.mod": "module example.com/a\n\ngo 1.24\n", "main.go": "package main\n\nfunc main() { oh }\n"})
	var out, log bytes.Buffer
	cmd := rootCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SetArgs([]string{"module", "build", folder})
	if err := cmd.ExecuteContext(t.Context()); err == nil {
		t.Fatal("nothing is wrong with it")
	}
	containsAll(t, log.String(), "main.go:3:15: undefined: oh")
}

func TestModuleBuild_MissingCompiler(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for flag, words := range map[string]string{"--tinygo=false": "go not found on the PATH: install Go 1.24", "--tinygo": "tinygo not found on the PATH: install it"} {
		_, err := execute(t, "module", "build", keepData, flag)
		if err == nil {
			t.Fatal("it was built by nothing")
		}
		containsAll(t, err.Error(), words)
	}
}

func TestModuleBuild_InvalidArguments(t *testing.T) {
	policy := folderOf(t, map[string]string{"policy.rego": orphanRego})
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"two folders":        {[]string{policy, policy}, "accepts at most one directory"},
		"no folder":          {[]string{"nowhere"}, "not a directory"},
		"a file":             {[]string{filepath.Join(policy, "policy.rego")}, "not a directory"},
		"an empty folder":    {[]string{t.TempDir()}, "gleaner module new"},
		"TinyGo for Rego":    {[]string{policy, "--tinygo"}, "omit --tinygo and --output"},
		"a file of Rego":     {[]string{policy, "-o", "a.wasm"}, "omit --tinygo and --output"},
		"a memory of little": {[]string{policy, "--memory", "1000"}, "--memory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, append([]string{"module", "build"}, c.args...)...)
			wantUsageError(t, err, c.says)
		})
	}
}

func TestModuleBuild_SeveralRegoFiles_NeedImage(t *testing.T) {
	out, err := execute(t, "module", "build", folderOf(t, map[string]string{
		"policy.rego": orphanRego, "more.rego": "package gleaner\n\nlater := 1\n", "policy_test.rego": "package gleaner_test\n\ntest_nothing if true\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "hooks   collect, validate", "a module in a ConfigMap has only one")
}
