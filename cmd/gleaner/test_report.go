package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/escape"
)

// testReporter shows suites, each as it comes to its end.
type testReporter interface {
	suite(s testSuite) error
	end(all []testSuite) error
}

// testReporters are the values of --output.
var testReporters = map[string]func(io.Writer, testOptions) testReporter{
	"text":  func(to io.Writer, o testOptions) testReporter { return &testText{to: to, verbose: o.verbose} },
	"json":  func(to io.Writer, _ testOptions) testReporter { return testJSON{to} },
	"junit": func(to io.Writer, _ testOptions) testReporter { return testJUnit{to} },
}

// testTally counts results.
type testTally struct{ passed, failed, skipped int }

func (t testTally) total() int { return t.passed + t.failed + t.skipped }

func tallyOf(suites []testSuite) (t testTally) {
	for _, s := range suites {
		for _, r := range s.Results {
			switch r.Outcome {
			case passed:
				t.passed++
			case skipped:
				t.skipped++
			default:
				t.failed++
			}
		}
	}
	return t
}

// testText is for people: a line for each suite, after what failed in it.
type testText struct {
	to      io.Writer
	verbose bool
	err     error // of the first write that failed
}

func (t *testText) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = kubectl.Fprintf(t.to, format, args...)
	}
}

func (t *testText) suite(s testSuite) error {
	for _, r := range s.Results {
		if r.Outcome == failed || t.verbose {
			t.result(r)
		}
	}
	if s.Broken != "" {
		t.printf("--- BROKEN: %s\n%s", s.Name, block(s.Broken))
	}
	tally := tallyOf([]testSuite{s})
	noun := map[string][2]string{"rego": {"test", "tests"}, "cases": {"case", "cases"}}[s.Kind]
	count := counted(tally.total(), noun[0], noun[1])
	if tally.failed != 0 {
		count = fmt.Sprintf("%d of %s", tally.failed, count)
	}
	if tally.skipped != 0 {
		count += fmt.Sprintf(", %d skipped", tally.skipped)
	}
	word := "ok   "
	if tally.failed != 0 || s.Broken != "" {
		word = "FAIL "
	}
	t.printf("%s %s\t%s\t%.2fs\n", word, s.Name, count, s.Seconds)
	for _, c := range s.Coverage {
		t.printf("      %s: %.1f%% of lines covered%s\n", filepath.Base(c.File), c.Percent, missing(c.Missed))
	}
	return t.err
}

func (t *testText) result(r testResult) {
	t.printf("--- %s: %s\n", strings.ToUpper(string(r.Outcome)), r.Name)
	if r.Outcome == failed {
		t.printf("    %s\n%s", at(r), block(r.Message))
	}
	if t.verbose && r.Hook != "" {
		t.printf("    %s: %s\n", r.Hook, answered(r))
		if r.Action != "" {
			t.printf("    the operator: %s\n", r.Action)
		}
	}
	if r.Output != "" {
		t.printf("%s", block(r.Output))
	}
}

func (t *testText) end(all []testSuite) error {
	tally := tallyOf(all)
	if t.verbose || len(all) > 1 {
		t.printf("%d passed, %d failed, %d skipped\n", tally.passed, tally.failed, tally.skipped)
	}
	return t.err
}

// answered is what a module answered to a case.
func answered(r testResult) string {
	switch {
	case r.Decision == "":
		return "no verdict"
	case r.Reason == "":
		return string(r.Decision)
	default:
		return fmt.Sprintf("%s, since %s", r.Decision, r.Reason)
	}
}

// at is where a test is.
func at(r testResult) string {
	if r.Line == 0 {
		return r.File
	}
	return fmt.Sprintf("%s:%d", r.File, r.Line)
}

// block indents a text.
func block(text string) kubectl.Safe {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n ") + "\n") {
		b.WriteString("    " + escape.Lines(line))
	}
	return kubectl.Safe(b.String())
}

// missing names lines, neighbours together.
func missing(lines []int) string {
	if len(lines) == 0 {
		return ""
	}
	var spans []string
	for i := 0; i < len(lines); {
		last := i
		for last+1 < len(lines) && lines[last+1] == lines[last]+1 {
			last++
		}
		if last == i {
			spans = append(spans, fmt.Sprint(lines[i]))
		} else {
			spans = append(spans, fmt.Sprintf("%d-%d", lines[i], lines[last]))
		}
		i = last + 1
	}
	return "; not reached: " + strings.Join(spans, ", ")
}

// testJSON is for programs.
type testJSON struct{ to io.Writer }

func (testJSON) suite(testSuite) error { return nil }

func (t testJSON) end(all []testSuite) error {
	tally := tallyOf(all)
	encoder := json.NewEncoder(t.to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Passed  int         `json:"passed"`
		Failed  int         `json:"failed"`
		Skipped int         `json:"skipped"`
		Suites  []testSuite `json:"suites"`
	}{tally.passed, tally.failed, tally.skipped, append([]testSuite{}, all...)})
}
