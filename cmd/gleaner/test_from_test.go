package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

func TestTestFrom_RecordBecomesPassingCases(t *testing.T) {
	root := folder(t, map[string]string{"a/policy.rego": readingRego})
	module, cases := filepath.Join(root, "a/policy.rego"), filepath.Join(root, "cases.yaml")
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", module)))
	out, err := execute(t, "test", "--from", file, "--module", module, "-o", cases)
	if err != nil || out != "" {
		t.Fatal(err, out)
	}
	if out, err = execute(t, "test", "-v", root); err != nil { // which finds them
		t.Fatal(err, out)
	}
	containsAll(t, out, "--- PASS: collect of PersistentVolumeClaim shop/data at 2026-01-02T12:00:00Z: Act (round 1)\n",
		"--- PASS: collect of PersistentVolumeClaim shop/data at 2026-01-02T12:00:00Z: Orphan (round 2)\n", "2 passed, 0 failed")

	changed := strings.Replace(readingRego, `"decision": "Orphan"`, `"decision": "Delete"`, 1)
	if err := os.WriteFile(module, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err = execute(t, "test", cases); err == nil {
		t.Fatal("they pass with another module, too", out)
	}
	containsAll(t, out, "--- FAIL: collect of PersistentVolumeClaim shop/data at 2026-01-02T12:00:00Z: Orphan (round 2)\n")
}

// What a case takes for granted where nothing is said is not in every request.
func TestTestFrom_CaseHasExactlyTheRecordedRequest(t *testing.T) {
	echo := writeFile(t, "policy.rego", "package gleaner\n\n"+
		"propagate := {\"decision\": \"Orphan\", \"reason\": json.marshal(input)}\n\ncollect := propagate\n\nfinalize := {\"decision\": \"Wait\", \"reason\": json.marshal(input)}\n")
	var node hostabi.Object
	if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"u","resourceVersion":"1"},"spec":{"on":"yes","at":"2026-01-01","no":"12"}}`), &node); err != nil {
		t.Fatal(err)
	}
	m, err := loader.Load(t.Context(), sandbox.Limits{}, []string{echo})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, hook := range []hostabi.Hook{hostabi.HookCollect, hostabi.HookPropagate, hostabi.HookFinalize} {
		r := hostabi.Request{APIVersion: hostabi.Version, Hook: hook, Object: node, Attempt: 4, Round: 2, State: json.RawMessage(`{"a":[null,1.5]}`)}
		a, err := m.Evaluate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		asked := record.Evaluation{Policy: "ClusterFinalizer echo", Module: "m", Rounds: 1}
		asked.SetExchanges([]policies.Exchange{policies.NewExchange(r, policies.Evaluation{Verdict: a.Verdict, Fuel: a.Usage.Fuel}, nil)}, true)
		text, err := execute(t, "test", "--from", saved(t, "?exchanges=true", claimEntry("n", asked)))
		if err != nil {
			t.Fatal(err)
		}
		containsAll(t, text, "# Recorded evaluations of ClusterFinalizer echo for PersistentVolumeClaim shop/data.\nmodule: policy.rego\ncases:\n")
		cases := filepath.Join(filepath.Dir(echo), string(hook)+".yaml")
		if err := os.WriteFile(cases, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := execute(t, "test", cases); err != nil {
			t.Errorf("%s: %v\n%s\n%s", hook, err, out, text)
		}
	}
}

// A case is a merge patch, in which a null takes a field out.
func TestTestFrom_WarnsAboutNullFields(t *testing.T) {
	module := writeFile(t, "policy.rego", readingRego)
	asked := consulted(t, "keep", module)
	asked.Exchanges[1].Request.State = json.RawMessage(`{"a": {"b": null}}`)
	cmd := rootCommand()
	var out, log strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&log)
	cmd.SetArgs([]string{"test", "--from", saved(t, "?exchanges=true", claimEntry("claim", asked))})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "round 2: the request has null fields, which a case can't contain\n"; log.String() != want {
		t.Errorf("it says %q", log.String())
	}
}

func TestTestFrom_FaultBecomesWantFault(t *testing.T) {
	module := writeFile(t, "policy.rego", "package gleaner\n\ncollect := {\"decision\": \"Perhaps\"}\n")
	cases := filepath.Join(filepath.Dir(module), "cases.yaml")
	file := saved(t, "?exchanges=true", claimEntry("claim", consulted(t, "keep", module)))
	if _, err := execute(t, "test", "--from", file, "--output", cases); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t, "test", "-v", cases)
	if err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, ": a fault\n", "1 passed")
}

func TestTestFrom_InvalidArguments(t *testing.T) {
	module := writeFile(t, "policy.rego", readingRego)
	asked := consulted(t, "keep", module)
	file := saved(t, "?exchanges=true", claimEntry("claim", asked))
	late := asked
	late.Exchanges = []policies.Exchange{{Request: asked.Exchanges[0].Request, Fault: "it took longer", FaultKind: policies.FaultTimedOut}}
	for claim, c := range map[string]struct {
		args []string
		says []string
	}{
		"a file that is there":     {[]string{"--from", file, "-o", module}, []string{"already exists", "--output"}},
		"tests as well":            {[]string{"--from", file, "."}, []string{"--from runs no tests"}},
		"coverage as well":         {[]string{"--from", file, "--coverage"}, []string{"--coverage can't be used with --from"}},
		"a module without":         {[]string{"--module", module}, []string{"--module requires --from"}},
		"a policy without":         {[]string{"--policy", "keep"}, []string{"--policy requires --from"}},
		"no transcript":            {[]string{"--from", saved(t, "", claimEntry("claim", asked))}, []string{"?exchanges=true"}},
		"several":                  {[]string{"--from", saved(t, "?exchanges=true", claimEntry("a", asked), claimEntry("b", asked))}, []string{"select one"}},
		"nothing that is for ever": {[]string{"--from", saved(t, "?exchanges=true", claimEntry("a", late))}, []string{"no round can be converted"}},
	} {
		t.Run(claim, func(t *testing.T) {
			_, err := execute(t, append([]string{"test"}, c.args...)...)
			wantUsageError(t, err, c.says...)
		})
	}
}
