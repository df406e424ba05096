package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
)

const orphanRego = `package gleaner

collect := {"decision": "Orphan", "reason": "it is data"}

validate := {"decision": "Valid"} if input.policy.settings.good

validate := {"decision": "Invalid", "reason": "good is missing"} if not input.policy.settings.good
`

// file writes a file into a folder of the test's own, and returns its name.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// containsAll makes sure that a command's output, or its error, has all of the words.
func containsAll(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

func TestModule_Rego_InspectValidateAndBench(t *testing.T) {
	policy := writeFile(t, "policy.rego", orphanRego)
	out, err := execute(t, "module", "inspect", policy)
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "rego", "collect, validate", "bytes of WebAssembly", "yes: it consumes fuel", "250000000 units")
	if out, err = execute(t, "module", "inspect", filepath.Dir(policy), "-o", "json"); err != nil {
		t.Fatal(err)
	}
	var facts loader.Facts
	if err := json.Unmarshal([]byte(out), &facts); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]hostabi.Hook{hostabi.HookCollect, hostabi.HookValidate}, facts.Hooks); diff != "" {
		t.Error(diff)
	}
	if out, err = execute(t, "module", "bench", policy, "-n", "20"); err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, `{"decision":"Orphan","reason":"it is data"}`, "20 calls", "p99", "units for each call")
	if out, err = execute(t, "module", "validate", policy, "--settings", writeFile(t, "s.json", `{"good": true}`)); err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "valid")
	if _, err = execute(t, "module", "validate", policy, "--settings", writeFile(t, "s.json", `{}`)); err == nil {
		t.Fatal("settings that the module refuses are valid")
	}
	containsAll(t, err.Error(), "the module rejects the settings: good is missing")
}

func TestModule_Go_InspectAndBench(t *testing.T) {
	module := filepath.Join(t.TempDir(), "keep-data.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", module, ".")
	build.Dir = "../../sdk/go/examples/keep-data"
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(code); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t, "module", "inspect", writeFile(t, "keep-data.wasm.gz", zipped.String()))
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "wasm", "propagate, collect, validate", "gleaner_v1.request_read")
	if out, err = execute(t, "module", "bench", module, "-n", "5"); err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "5 calls", "units for each call")
}

func TestModule_Invalid_ErrorsNameTheCause(t *testing.T) {
	good := writeFile(t, "good.rego", orphanRego)
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"text":          {[]string{"validate", writeFile(t, "policy.txt", "hello")}, []string{"is neither WebAssembly, optionally compressed with gzip, nor a .rego file"}},
		"nothing there": {[]string{"validate", "nowhere.wasm"}, []string{"read module", "nowhere.wasm"}},
		"half a module": {[]string{"validate", writeFile(t, "half.wasm", "\x00asm\x01\x00\x00\x00\x01")}, []string{"half.wasm"}},
		"an empty module": {[]string{"validate", writeFile(t, "empty.wasm", "\x00asm\x01\x00\x00\x00")},
			[]string{"it exports no hook: it must export a function for each hook that it implements"}},
		"a damaged gzip":  {[]string{"validate", writeFile(t, "x.wasm.gz", "\x1f\x8b\x00")}, []string{"the gzip data is damaged"}},
		"a network call":  {[]string{"validate", writeFile(t, "net.rego", "package gleaner\n\ncollect := http.send({\"url\": \"http://x\", \"method\": \"get\"}).body\n")}, []string{"net.rego:3", "http.send"}},
		"another package": {[]string{"validate", writeFile(t, "other.rego", "package other\n\ncollect := {}\n")}, []string{"other.rego:1", "package gleaner"}},
		"too little fuel": {[]string{"bench", good, "--fuel", "10"}, []string{"fuel"}},
		"another hook": {[]string{"bench", good, "--request", writeFile(t, "r.json", `{"hook": "finalize"}`)},
			[]string{`is for the hook "finalize"`, "collect"}},
		"no request": {[]string{"bench", good, "--request", writeFile(t, "r.json", `[`)}, []string{"read request", "r.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, append([]string{"module"}, c.args...)...)
			if err == nil {
				t.Fatal("nothing is wrong with it")
			}
			containsAll(t, err.Error(), c.says...)
		})
	}
	for name, args := range map[string][]string{
		"no module":     {"module", "inspect"},
		"no such form":  {"module", "inspect", good, "-o", "yaml"},
		"no calls":      {"module", "bench", good, "-n", "0"},
		"no fuel":       {"module", "bench", good, "--fuel", "0"},
		"little memory": {"module", "bench", good, "--memory", "1000"},
		"no time":       {"module", "bench", good, "--timeout", "0s"},
		"two languages": {"module", "inspect", good, writeFile(t, "x.wasm", "")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := execute(t, args...)
			wantUsageError(t, err)
		})
	}
}
