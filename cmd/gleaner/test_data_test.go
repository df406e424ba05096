package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const testsOfData = `package gleaner

test_every_kept_kind_stays if {
	some kind in data.fixtures.kept
	collect.decision == "Orphan" with input.object.kind as kind
}

test_below if data.shop.size == 3
`

func TestTest_LoadsData(t *testing.T) {
	root := testFolder(t, map[string]string{
		"a/data_test.rego": testsOfData,
		"a/data.json":      `{"fixtures": {"kept": ["PersistentVolumeClaim"]}}`,
		"a/shop/data.yaml": "size: 3\ncases: none\nhook: none\n",
		"b/data.json":      `{"fixtures": {"kept": []}}`, // of another folder
	})
	out, err := execute(t, "test", root)
	if err != nil {
		t.Fatal(err, out)
	}
	containsAll(t, out, "7 passed, 0 failed, 1 skipped")
	if out, err = execute(t, "test", filepath.Join(root, "a/policy.rego"), filepath.Join(root, "a/data_test.rego"), filepath.Join(root, "a/data.json")); err == nil {
		t.Fatal("data that was not named was read", out)
	}
	containsAll(t, out, "--- FAIL: gleaner.test_below", "1 of 2 tests")
}

func TestTest_RejectsDataThatClustersLack(t *testing.T) {
	for claim, c := range map[string]struct {
		files map[string]string
		says  []string
	}{
		"a rule that reads data": {map[string]string{"a/more.rego": "package gleaner\n\npropagate := {\"decision\": data.fixtures.how}\n", "a/data.json": `{"fixtures": {"how": "Orphan"}}`},
			[]string{"more.rego:3: data.fixtures.how does not exist", "input.policy.settings"}},
		"data where a rule is": {map[string]string{"a/data.json": `{"gleaner": {"collect": {"decision": "Delete"}}}`},
			[]string{"gleaner/collect", "conflicting"}},
		"a list":     {map[string]string{"a/data.json": `[1]`}, []string{"data.json: it must be one object"}},
		"data twice": {map[string]string{"a/data.json": `{"b": {"c": 1}}`, "a/b/data.yaml": "c: 2\n"}, []string{"data.json: data.b.c is also defined in another file"}},
	} {
		t.Run(claim, func(t *testing.T) {
			out, err := execute(t, "test", testFolder(t, c.files))
			wantUsageError(t, err, "1 file or directory can't be tested")
			containsAll(t, out, c.says...)
		})
	}
}

func TestTest_FailsBelowTheThreshold(t *testing.T) {
	root := testFolder(t, nil) // 66.7 %
	if out, err := execute(t, "test", "--threshold", "60", root); err != nil {
		t.Error(err, out)
	} else {
		containsAll(t, out, "66.7% of lines covered")
	}
	out, err := execute(t, "test", "--threshold", "66.8", root)
	if err == nil || err.Error() != "the tests cover 66.7% of the lines of Rego, less than --threshold=66.8" {
		t.Errorf("the error is %v:\n%s", err, out)
	}
	for _, wrong := range []string{"-1", "101", "NaN"} {
		_, err = execute(t, "test", "--threshold", wrong, root)
		wantUsageError(t, err, "--threshold=", "use a percentage from 0 to 100")
	}
	_, err = execute(t, "test", "--threshold", "1", filepath.Join(root, "a/cases.yaml"))
	wantUsageError(t, err, "no Rego test was run")
	_, err = execute(t, "test", "--threshold", "1", "--run", "a", root)
	wantUsageError(t, err, "omit --run")
	_, err = execute(t, "test", "--watch", "-o", "json", root)
	wantUsageError(t, err, "omit --output=json")
}

// output collects what a command writes while it runs.
type output struct {
	written chan struct{} // readable after a write
	mu      sync.Mutex    // covers text
	text    bytes.Buffer
}

func newOutput() *output { return &output{written: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.written <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

// next waits for a text, and removes all up to its end.
func (o *output) next(t *testing.T, want string) string {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		if before, found := o.cut(want); found {
			return before
		}
		select {
		case <-o.written:
		case <-late.C:
			o.mu.Lock()
			defer o.mu.Unlock()
			t.Fatalf("no %q in:\n%s", want, o.text.String())
		}
	}
}

// cut removes all up to the end of a text, if that is there, and returns what came before.
func (o *output) cut(want string) (before string, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if before, _, found = strings.Cut(o.text.String(), want); found {
		o.text.Next(len(before) + len(want))
	}
	return before, found
}

func TestTest_WatchReruns(t *testing.T) {
	root := testFolder(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	out, log, ended := newOutput(), newOutput(), make(chan error, 1)
	cmd := rootCommandFor("gleaner")
	cmd.SetOut(out)
	cmd.SetErr(log)
	cmd.SetArgs([]string{"test", "--watch", root})
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	containsAll(t, out.next(t, "Watching for changes"), "5 passed, 0 failed, 1 skipped")

	policy := filepath.Join(root, "a/policy.rego")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(policy, strings.Replace(testedRego, `"Orphan"`, `"Delete"`, 1))
	containsAll(t, out.next(t, "Watching for changes"), "--- FAIL: gleaner.test_a_claim_stays", "3 passed, 2 failed")
	log.next(t, "2 of 6 tests failed")

	write(policy, testedRego)
	containsAll(t, out.next(t, "Watching for changes"), "5 passed, 0 failed, 1 skipped")
	write(filepath.Join(root, "a/new_test.rego"), "package gleaner\n\ntest_new if true\n")
	containsAll(t, out.next(t, "Watching for changes"), "6 passed, 0 failed, 1 skipped")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
