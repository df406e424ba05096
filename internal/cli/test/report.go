package test

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/escape"
)

// reporter reports suites as they complete.
type reporter interface {
	suite(s Suite) error
	end(all []Suite) error
}

// reporters are the reporters by value of --output.
var reporters = map[string]func(io.Writer, options) reporter{
	"text":  func(to io.Writer, o options) reporter { return &textReporter{to: to, verbose: o.verbose} },
	"json":  func(to io.Writer, _ options) reporter { return jsonReporter{to} },
	"junit": func(to io.Writer, _ options) reporter { return junitReporter{to} },
}

// tally counts results.
type tally struct{ passed, failed, skipped int }

func (t tally) total() int { return t.passed + t.failed + t.skipped }

func tallyOf(suites []Suite) (t tally) {
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

// textReporter writes text: failed tests, then a line for each suite.
type textReporter struct {
	to      io.Writer
	verbose bool
	err     error // of the first write that failed
}

func (t *textReporter) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = printer.Fprintf(t.to, format, args...)
	}
}

func (t *textReporter) suite(s Suite) error {
	for _, r := range s.Results {
		if r.Outcome == Failed || t.verbose {
			t.result(r)
		}
		if r.Runs != 0 {
			t.printf("%s\t%d\t%s\n", r.Name, r.Runs, perRun(r.NanosPerRun))
		}
	}
	if s.Broken != "" {
		t.printf("--- BROKEN: %s\n%s", s.Name, indentBlock(s.Broken))
	}
	tally := tallyOf([]Suite{s})
	noun := map[string][2]string{"rego": {"test", "tests"}, "cases": {"case", "cases"}}[s.Kind]
	count := printer.Count(tally.total(), noun[0], noun[1])
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
		t.printf("      %s: %.1f%% of lines covered%s\n", filepath.Base(c.File), c.Percent, lineRanges(c.Missed))
	}
	return t.err
}

func (t *textReporter) result(r Result) {
	t.printf("--- %s: %s\n", strings.ToUpper(string(r.Outcome)), r.Name)
	if r.Outcome == Failed {
		t.printf("    %s\n%s", location(r), indentBlock(r.Message))
	}
	if t.verbose && r.Hook != "" {
		t.printf("    %s: %s\n", r.Hook, describeVerdict(r))
		if r.Action != "" {
			t.printf("    operator: %s\n", r.Action)
		}
	}
	if r.Values != "" {
		t.printf("%s", indentBlock(r.Values))
	}
	if r.Output != "" {
		t.printf("%s", indentBlock(r.Output))
	}
}

// perRun returns the time of an evaluation with three digits.
func perRun(nanos float64) string {
	d := time.Duration(nanos)
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return fmt.Sprintf("%v per evaluation", d.Round(unit/100))
		}
	}
	return fmt.Sprintf("%v per evaluation", d)
}

func (t *textReporter) end(all []Suite) error {
	tally := tallyOf(all)
	if t.verbose || len(all) > 1 {
		t.printf("%d passed, %d failed, %d skipped\n", tally.passed, tally.failed, tally.skipped)
	}
	return t.err
}

// describeVerdict describes the verdict for a case.
func describeVerdict(r Result) string {
	switch {
	case r.Decision == "":
		return "no verdict"
	case r.Reason == "":
		return string(r.Decision)
	default:
		return fmt.Sprintf("%s (%s)", r.Decision, r.Reason)
	}
}

// location returns the location of a test.
func location(r Result) string {
	if r.Line == 0 {
		return r.File
	}
	return fmt.Sprintf("%s:%d", r.File, r.Line)
}

// indentBlock indents a text.
func indentBlock(text string) printer.Safe {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n ") + "\n") {
		b.WriteString("    " + escape.Lines(line))
	}
	return printer.Safe(b.String())
}

// lineRanges lists lines as ranges.
func lineRanges(lines []int) string {
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
	return "; not covered: " + strings.Join(spans, ", ")
}

// jsonReporter writes JSON.
type jsonReporter struct{ to io.Writer }

func (jsonReporter) suite(Suite) error { return nil }

func (t jsonReporter) end(all []Suite) error {
	tally := tallyOf(all)
	encoder := json.NewEncoder(t.to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Passed  int     `json:"passed"`
		Failed  int     `json:"failed"`
		Skipped int     `json:"skipped"`
		Suites  []Suite `json:"suites"`
	}{tally.passed, tally.failed, tally.skipped, append([]Suite{}, all...)})
}
