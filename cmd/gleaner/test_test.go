package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/internal/cli/test"
)

const (
	testedRego = `package gleaner

collect := {"decision": "Orphan", "reason": "it is data"} if input.object.kind == "PersistentVolumeClaim"

else := {"decision": "Abstain"}

propagate := {"decision": "Foreground", "dependents": [{"kind": "Pod", "decision": "Orphan"}]}
`
	testsRego = `package gleaner

test_a_claim_stays if collect.decision == "Orphan" with input.object.kind as "PersistentVolumeClaim"

test_a_pod_goes if {
	print("asked about a Pod")
	collect.decision == "Abstain" with input.object.kind as "Pod"
}

todo_test_a_snapshot_stays if collect.decision == "Orphan" with input.object.kind as "VolumeSnapshot"
`
	casesOfRego = `module: policy.rego
cases:
- name: a claim stays
  request: {hook: collect, object: {kind: PersistentVolumeClaim}}
  want: {decision: Orphan, reason: it is data}
- name: a Pod goes
  request: {hook: collect, object: {kind: Pod}}
  want: {decision: Abstain}
- name: Pods stay
  request: {hook: propagate}
  want: {decision: Foreground, dependents: [{kind: Pod, decision: Orphan}]}
`
)

// folder writes files, and their folders, into a folder of the test's own.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// testFolder is a folder with a policy that passes its tests.
func testFolder(t *testing.T, also map[string]string) string {
	t.Helper()
	files := map[string]string{"a/policy.rego": testedRego, "a/policy_test.rego": testsRego, "a/cases.yaml": casesOfRego}
	for name, text := range also {
		files[name] = text
	}
	return folder(t, files)
}

func TestTest_FindsTestsRecursively(t *testing.T) {
	root := testFolder(t, map[string]string{
		"a/deep/b.rego":           "package gleaner\n\ncollect := {\"decision\": \"Delete\"}\n\ntest_it if collect.decision == \"Delete\"\n",
		"manifests/apply.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {cases: none}\n",
		"manifests/other.yaml":    "cases:\n- this is of another program\n",
		"manifests/chart.yaml":    "{{ if .Values.a }}\n",
		"other/library.rego":      "package other\n\nnonsense :=\n",
		".hidden/policy.rego":     "package gleaner\n\ntest_it if false\n",
		"node_modules/a/p.rego":   "package gleaner\n\ntest_it if false\n",
		"policies[1]/p_test.rego": "package gleaner\n\ntest_it if true\n",
	})
	out, err := execute(t, "test", root)
	if err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, filepath.Join(root, "a")+"\t3 tests, 1 skipped\t", filepath.Join(root, "a/cases.yaml")+"\t3 cases\t",
		filepath.Join(root, "a/deep")+"\t1 test\t", filepath.Join(root, "policies[1]")+"\t1 test\t", "7 passed, 0 failed, 1 skipped")
	if lines := strings.Count(out, "\n"); lines != 5 {
		t.Errorf("%d lines:\n%s", lines, out)
	}
}

func TestTest_ShowsActionOfTheOperator(t *testing.T) {
	root := testFolder(t, map[string]string{"a/cases.yaml": casesOfRego + `
- name: a claim whose owner stands is not asked about
  request:
    hook: collect
    object: {kind: PersistentVolumeClaim}
    owners:
    - {reference: {apiVersion: v1, kind: ConfigMap, name: a, uid: a}, status: Present}
    - {reference: {apiVersion: v1, kind: ConfigMap, name: b, uid: b}, status: Absent}
  want: {decision: Orphan, reason: it is data}
- name: an owner that nobody could read
  request:
    hook: collect
    owners: [{reference: {apiVersion: v1, kind: ConfigMap, name: a, uid: a}, status: Unknown}]
  want: {decision: Abstain}
- name: no hook to speak of
  request: {hook: validate}
  wantFault: it has no rule validate
`})
	out, err := execute(t, "test", "-v", filepath.Join(root, "a/cases.yaml"))
	if err != nil {
		out = strings.ReplaceAll(out, root, "")
		t.Fatal(err, out)
	}
	containsAll(t, out,
		"--- PASS: a claim stays\n    collect: Orphan (it is data)\n    operator: keep and remove 1 owner reference (KeptByPolicy)\n",
		"--- PASS: a Pod goes\n    collect: Abstain\n    operator: evaluate the next policy, or by default: delete in background (OwnersAbsent)\n",
		"--- PASS: Pods stay\n    propagate: Foreground\n    operator: delete again with propagation policy Foreground (PropagationDecided); dependents of kind Pod: Orphan\n",
		"operator: no policy is evaluated: keep and remove 1 owner reference (OwnerRemains)\n",
		"operator: no policy is evaluated: keep and retry (OwnerUnreadable)\n",
		"    validate: no verdict\n",
	)
}

func TestTest_Failure_ShowsMessageAndLocation(t *testing.T) {
	root := testFolder(t, map[string]string{"a/policy.rego": strings.Replace(testedRego, `"Orphan"`, `"Delete"`, 1)})
	out, err := execute(t, "test", root)
	if err == nil {
		t.Fatal("nothing failed")
	}
	if diff := cmp.Diff("2 of 6 tests failed", err.Error()); diff != "" {
		t.Error(diff)
	}
	containsAll(t, out,
		"--- FAIL: gleaner.test_a_claim_stays\n    "+filepath.Join(root, "a/policy_test.rego")+":3\n",
		"--- FAIL: a claim stays\n    "+filepath.Join(root, "a/cases.yaml")+":3\n    policy.rego returns (-want +got):\n"+
			"    - {\"decision\":\"Orphan\",\"reason\":\"it is data\"}\n    + {\"decision\":\"Delete\",\"reason\":\"it is data\"}\n",
		"FAIL  "+filepath.Join(root, "a/cases.yaml")+"\t1 of 3 cases\t",
	)
	if strings.Contains(out, "a Pod goes") {
		t.Errorf("it shows what passed:\n%s", out)
	}
	// The printed lines of a test that passed are shown to those who ask.
	if out, _ = execute(t, "test", "-v", root); !strings.Contains(out, "    asked about a Pod\n") {
		t.Errorf("what was printed is missing:\n%s", out)
	}
}

func TestTest_RunsOnlyWhatMatches(t *testing.T) {
	root := testFolder(t, nil)
	out, err := execute(t, "test", "--run", "claim", root)
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "2 passed, 0 failed, 0 skipped")
	_, err = execute(t, "test", "--run", "^nothing$", root)
	wantUsageError(t, err, "no test matches --run=^nothing$")
}

func TestTest_JSONAndJUnitOutput(t *testing.T) {
	root := testFolder(t, map[string]string{
		"a/policy.rego": strings.Replace(testedRego, `"Orphan"`, `"Delete"`, 1),
		"b/cases.yaml":  "module: missing.rego\n" + strings.TrimPrefix(casesOfRego, "module: policy.rego\n"),
	})
	out, err := execute(t, "test", "-o", "json", root)
	wantUsageError(t, err, "1 file or directory can't be tested")
	var report struct {
		Passed, Failed, Skipped int
		Suites                  []test.Suite
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err, out)
	}
	if diff := cmp.Diff([]int{3, 2, 1, 3}, []int{report.Passed, report.Failed, report.Skipped, len(report.Suites)}); diff != "" {
		t.Fatal(diff)
	}
	want := test.Result{
		Name: "a claim stays", File: filepath.Join(root, "a/cases.yaml"), Line: 3, Outcome: test.Failed, Module: "policy.rego",
		Hook: "collect", Decision: "Delete", Reason: "it is data", Action: "delete in background (OwnersAbsent)",
		Message: "policy.rego returns (-want +got):\n- {\"decision\":\"Orphan\",\"reason\":\"it is data\"}\n+ {\"decision\":\"Delete\",\"reason\":\"it is data\"}",
	}
	if diff := cmp.Diff(want, report.Suites[1].Results[0]); diff != "" {
		t.Error(diff)
	}
	containsAll(t, report.Suites[2].Broken, "module missing.rego", "no such file")

	if out, err = execute(t, "test", "-o", "junit", root); err == nil {
		t.Fatal("nothing failed")
	}
	var junit test.JUnitSuites
	if err := xml.Unmarshal([]byte(out), &junit); err != nil {
		t.Fatal(err, out)
	}
	if diff := cmp.Diff([]int{7, 2, 1}, []int{junit.Tests, junit.Failures, junit.Errors}); diff != "" {
		t.Error(diff)
	}
	if f := junit.Suites[1].Cases[0].Failure; f == nil || f.Text != want.Message {
		t.Errorf("the failure is %+v", f)
	}
}

func TestTest_ShowsUncoveredLines(t *testing.T) {
	root := testFolder(t, nil)
	out, err := execute(t, "test", "--coverage", root)
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "policy.rego: 66.7% of lines covered; not covered: 7\n")
}

func TestTest_RunsCasesWithRegoAndWasm(t *testing.T) {
	const shared = "../../policies/policytest/testdata/"
	read := func(name string) string {
		text, err := os.ReadFile(shared + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	root := folder(t, map[string]string{
		"keep-data.rego": read("keep-data.rego"),
		"cases.yaml":     strings.Replace(read("keep-data.yaml"), "module: keep-data.rego", "module: [keep-data.rego, keep-data.wasm]", 1),
	})
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", filepath.Join(root, "keep-data.wasm"), ".")
	build.Dir = "../../sdk/go/examples/keep-data"
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := execute(t, "test", root)
	if err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, "\t44 cases\t")
}

func TestTest_LibraryPasses(t *testing.T) {
	out, err := execute(t, "test", "../../policies/library")
	if err != nil {
		t.Fatal(err, out)
	}
	if strings.Count(out, "ok    ") < 14 {
		t.Errorf("not everything ran:\n%s", out)
	}
}

func TestTest_SDKExamplesPass(t *testing.T) {
	readme, err := os.ReadFile("../../sdk/rego/README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{}
	for _, found := range regexp.MustCompile("(?s)```(rego|yaml)\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		blocks[found[1]] = append(blocks[found[1]], found[2])
	}
	if len(blocks["rego"]) != 3 || len(blocks["yaml"]) != 1 {
		t.Fatalf("the blocks are %v", blocks)
	}
	root := folder(t, map[string]string{
		"policy.rego":      blocks["rego"][0],
		"settings.rego":    "package gleaner\n\nimport data.gleaner.sdk.settings\n\n" + blocks["rego"][1],
		"policy_test.rego": "package gleaner\n\n" + blocks["rego"][2],
		"cases.yaml":       blocks["yaml"][0],
	})
	out, err := execute(t, "test", root)
	if err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, "3 passed, 0 failed")
}

func TestTest_InvalidArguments(t *testing.T) {
	good := testFolder(t, nil)
	bare := strings.TrimPrefix(casesOfRego, "module: policy.rego\n")
	for claim, c := range map[string]struct {
		args  []string
		error []string
		out   []string
	}{
		"an empty folder":       {[]string{t.TempDir()}, []string{"no tests found", "test_a_claim_stays", "module: policy.rego"}, nil},
		"a policy alone":        {[]string{filepath.Join(good, "a/policy.rego")}, []string{"no tests found"}, nil},
		"no such folder":        {[]string{"nowhere"}, []string{"find tests", "nowhere"}, nil},
		"another file":          {[]string{writeFile(t, "policy.txt", "")}, []string{"policy.txt is not a test file"}, nil},
		"no such output":        {[]string{"-o", "yaml", good}, []string{"use text, json or junit"}, nil},
		"no time":               {[]string{"--timeout", "0s", good}, []string{"--timeout=0s"}, nil},
		"a bad expression":      {[]string{"--run", "(", good}, []string{"--run", "missing closing"}, nil},
		"half the coverage":     {[]string{"--run", "a", "--coverage", good}, []string{"--coverage and --threshold require all tests"}, nil},
		"one dash":              {[]string{"-run", "a", good}, []string{"use --run, with two dashes"}, nil},
		"another flag":          {[]string{"--bundle", good}, []string{"--bundle", "see gleaner test --help"}, nil},
		"no module":             {[]string{folder(t, map[string]string{"c.yaml": bare})}, []string{"1 file or directory"}, []string{"c.yaml does not name a module: write, for example, module: policy.rego"}},
		"a misspelt case":       {[]string{writeFile(t, "c.yaml", strings.Replace(casesOfRego, "want:", "wants:", 1))}, []string{"1 file or directory"}, []string{`unknown field "wants"`}},
		"a module that is none": {[]string{folder(t, map[string]string{"c.yaml": casesOfRego, "policy.rego": "package other\n\ncollect := 1\n"})}, []string{"1 file or directory"}, []string{"module policy.rego", "package gleaner"}},
		"Rego that is none":     {[]string{writeFile(t, "a_test.rego", "package gleaner\n\ntest_it if {\n")}, []string{"1 file or directory"}, []string{"--- BROKEN: ", "a_test.rego:"}},
	} {
		t.Run(claim, func(t *testing.T) {
			out, err := execute(t, append([]string{"test"}, c.args...)...)
			wantUsageError(t, err, c.error...)
			containsAll(t, out, c.out...)
		})
	}
}

func TestTest_Timeout(t *testing.T) {
	_, err := execute(t, "test", "--timeout", "1ns", testFolder(t, nil))
	if err == nil {
		t.Fatal("it has passed")
	}
	containsAll(t, err.Error(), "the tests did not complete: --timeout=1ns exceeded")
}
