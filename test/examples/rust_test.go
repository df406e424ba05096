package examples

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	cli "github.com/gleaner-dev/gleaner/internal/cli/module"
	"github.com/gleaner-dev/gleaner/policies/policytest"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/sdk/rust/rusttest"
)

// rustExamples are the examples with the same module in Go and, in the folder rust, in Rust.
var rustExamples = []string{"backup-before-delete"}

// rustFolder returns the folder of an example's module in Rust, and skips the test without Rust. What is compiled is not
// left in the folder.
func rustFolder(t *testing.T, name string) string {
	t.Helper()
	folder := filepath.Join(exampleFolder(name), "rust")
	rusttest.Require(t, filepath.Join("..", "..", "sdk", "rust", "src"), folder)
	t.Setenv("CARGO_TARGET_DIR", t.TempDir())
	return folder
}

// compileRustPolicy is compilePolicy for the module in Rust, built with the command of the README.
func compileRustPolicy(t *testing.T, name string) *wasm.Policy {
	t.Helper()
	folder, target := rustFolder(t, name), filepath.Join(t.TempDir(), "module.wasm")
	key := name + "/rust"
	builtModules.mu.Lock()
	_, made := builtModules.made[key]
	builtModules.mu.Unlock()
	if !made {
		var out bytes.Buffer
		cmd := cli.Command()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"build", folder, "-o", target})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		m, err := readModule(target)
		if err != nil {
			t.Fatal(err)
		}
		builtModules.mu.Lock()
		if builtModules.made == nil {
			builtModules.made = map[string]module{}
		}
		builtModules.made[key] = m
		builtModules.mu.Unlock()
	}
	return compilePolicy(t, key) // which is built
}

func TestRustModules_PassTheirOwnTests(t *testing.T) {
	for _, name := range rustExamples {
		t.Run(name, func(t *testing.T) {
			folder := rustFolder(t, name) // first, since it changes the PATH
			cmd := exec.CommandContext(t.Context(), "cargo", "test", "--offline")
			cmd.Dir = folder
			out, err := cmd.CombinedOutput()
			if err != nil || bytes.Contains(out, []byte("running 0 tests")) {
				t.Errorf("cargo test: %v\n%s", err, out)
			}
		})
	}
}

func TestRustModules_PassTheCasesOfThoseInGo(t *testing.T) {
	for _, name := range rustExamples {
		t.Run(name, func(t *testing.T) {
			policy := compileRustPolicy(t, name)
			cases, err := policytest.Load(filepath.Join(exampleFolder(name), "cases.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			passed := map[hostabi.Hook]int{}
			for _, c := range cases {
				if err := policytest.Check(t.Context(), policy, c); err != nil {
					t.Errorf("%s: %v", c.Name, err)
					continue
				}
				passed[c.Request.Hook]++
			}
			if passed[hostabi.HookFinalize] == 0 || passed[hostabi.HookValidate] == 0 {
				t.Errorf("of %d cases, only these have passed: %v", len(cases), passed)
			}
		})
	}
}

// backupObjects are objects to back up, as API servers encode them, with what other encoders write in different ways.
var backupObjects = map[string]string{
	"characters": `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"7",
		"labels":{"a":"1","b":"2"},"managedFields":[{}]},"data":{"\u003ck\u003e":"\u003cb\u003e\u0026 \u2028\u2029 é😀 \"\\/ \b\f\t\r\n\u0001` + "\x7f" + `"}}`,
	"values": `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"t","uid":"u-2","resourceVersion":"7"},
		"spec":{"a":1.50,"b":1e3,"c":12345678901234567890123,"d":null,"e":[{},[],true],"f":{"x":-0,"y":""}},"immutable":false}`,
	"Secret":           `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"7"}}`,
	"Secret of others": `{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"7"}}`,
}

func failedBackup(reason hostabi.ErrorReason) hostabi.Result {
	return hostabi.Result{Error: &hostabi.ResultError{Reason: reason, Message: "oh"}}
}

func backupResponse(status int) hostabi.Result {
	return hostabi.Result{HTTP: &hostabi.HTTPResult{Status: status, Body: "oh", Headers: map[string]string{"Retry-After": "7"}}}
}

// answers are results of steps, by what they show. Other steps succeed, and return what was stored.
type answers map[string]map[string]hostabi.Result

var (
	successfulBackup = answers{"all succeed": {}}

	createAnswers = answers{
		"all succeed":          {},
		"not created":          {"store": failedBackup(hostabi.ErrorForbidden)},
		"not created now":      {"store": failedBackup(hostabi.ErrorUnavailable)},
		"not readable":         {"check": failedBackup(hostabi.ErrorNotGranted)},
		"lost":                 {"check": failedBackup(hostabi.ErrorNotFound)},
		"of before":            {"check": {Object: &hostabi.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: hostabi.Metadata{Name: "x", UID: "b"}}}},
		"of before, and again": {"check": {Object: &hostabi.Object{}}, "renew": failedBackup(hostabi.ErrorConflict)},
		"of before, and gone":  {"check": {Object: &hostabi.Object{}}, "check-again": failedBackup(hostabi.ErrorNotFound)},
	}

	putAnswers = answers{
		"all succeed":    {},
		"not sent":       {"store": failedBackup(hostabi.ErrorNotGranted)},
		"no response":    {"check": failedBackup(hostabi.ErrorUnavailable)},
		"stored: 403":    {"store": backupResponse(403)},
		"stored: 404":    {"store": backupResponse(404)},
		"stored: 503":    {"store": backupResponse(503)},
		"other body":     {"check": backupResponse(200)},
		"read back: 404": {"check": backupResponse(404)},
	}
)

// The modules decide the same, to the byte of a manifest, so that one can replace the other.
func TestBackupInRust_DecidesTheSameAsInGo(t *testing.T) {
	rust, inGo := compileRustPolicy(t, "backup-before-delete"), compilePolicy(t, "backup-before-delete")
	decisions := map[hostabi.Decision]int{}
	for settings, tried := range map[string]answers{
		`{"namespace":"backups"}`: createAnswers, `{"namespace":"backups","url":""}`: createAnswers, `{"url":"http://backup.example.com/m"}`: putAnswers,
		`null`: successfulBackup, `{}`: successfulBackup, `{"namespace":""}`: successfulBackup, `{"namespace":"a","url":"https://x"}`: successfulBackup,
		`{"url":"https://x/"}`: successfulBackup, `{"url":"ftp://x"}`: successfulBackup,
	} {
		r := hostabi.Request{
			APIVersion: hostabi.Version, Time: time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), Attempt: 3, Round: 1, IdempotencyKey: "key",
			Hook: hostabi.HookValidate, Policy: hostabi.Policy{Name: "backup", Settings: json.RawMessage(settings)},
		}
		decisions[decideTheSame(t, inGo, rust, r).Decision]++
		r.Hook = hostabi.HookFinalize
		for object, text := range backupObjects {
			if err := json.Unmarshal([]byte(text), &r.Object); err != nil {
				t.Fatal(err)
			}
			for name, results := range tried {
				t.Run(settings+" "+object+" "+name, func(t *testing.T) {
					decisions[finalizeTheSame(t, inGo, rust, r, results)]++
				})
			}
		}
	}
	for _, d := range []hostabi.Decision{hostabi.DecisionValid, hostabi.DecisionInvalid, hostabi.DecisionDone, hostabi.DecisionWait, hostabi.DecisionFail} {
		if decisions[d] == 0 {
			t.Errorf("no request leads to %s: %v", d, decisions)
		}
	}
}

// finalizeTheSame evaluates both modules in rounds, until they do not act, and returns the decision.
func finalizeTheSame(t *testing.T, inGo, rust *wasm.Policy, r hostabi.Request, results map[string]hostabi.Result) hostabi.Decision {
	t.Helper()
	r.Results = map[string]hostabi.Result{}
	var stored hostabi.Result
	for ; r.Round < 16; r.Round++ {
		v := decideTheSame(t, inGo, rust, r)
		if v.Decision != hostabi.DecisionAct {
			return v.Decision
		}
		for _, intent := range v.Intents {
			switch {
			case intent.Create != nil:
				stored.Object = new(hostabi.Object)
				if err := json.Unmarshal(intent.Create.Object, stored.Object); err != nil {
					t.Fatal(err)
				}
			case intent.HTTP != nil && intent.HTTP.Method == "PUT":
				stored.HTTP = &hostabi.HTTPResult{Status: 200, Body: intent.HTTP.Body}
			}
			result, ok := results[intent.ID]
			if !ok {
				result = stored
			}
			r.Results[intent.ID] = result
		}
	}
	t.Fatal("the modules still act in the last round")
	return ""
}

// decideTheSame evaluates both modules, and returns their verdict.
func decideTheSame(t *testing.T, inGo, rust *wasm.Policy, r hostabi.Request) hostabi.Verdict {
	t.Helper()
	want, err := inGo.Evaluate(t.Context(), r)
	if err == nil {
		err = policytest.Check(t.Context(), rust, policytest.Case{Request: r, Want: want})
	}
	if err != nil {
		t.Fatalf("%s: %v", r.Policy.Settings, err)
	}
	return want
}
