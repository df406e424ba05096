package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

func TestTest_VarValues_ShowWhyARuleFails(t *testing.T) {
	root := folder(t, map[string]string{"policy.rego": testedRego, "policy_test.rego": `package gleaner

test_a_claim_goes if {
	decided := collect.decision with input.object.kind as "PersistentVolumeClaim"
	decided == "Delete"
}
`})
	out, err := execute(t, "test", root, "--var-values")
	if err == nil || !strings.Contains(out, "decided == \"Delete\"") || !strings.Contains(out, `"Orphan"`) || !strings.Contains(out, "policy_test.rego:5:") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := execute(t, "test", root); strings.Contains(out, `"Orphan"`) {
		t.Errorf("without the flag:\n%s", out)
	}
}

func TestTest_Bench_MeasuresWhatPassesAndIsSelected(t *testing.T) {
	root := testFolder(t, map[string]string{"a/failing_test.rego": "package gleaner\n\ntest_claims_fail if false\n"})
	out, err := execute(t, "test", root, "--bench", "--run", "claim")
	if err == nil || !strings.Contains(err.Error(), "1 of 3 tests failed") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{`(?m)^gleaner\.test_a_claim_stays\t\d+\t[0-9.]+(ns|µs|ms) per evaluation$`, `(?m)^a claim stays\t\d+\t[0-9.]+(ns|µs|ms) per evaluation$`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("nothing matches %s:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "per evaluation"); n != 2 {
		t.Errorf("%d were measured:\n%s", n, out)
	}
	out, _ = execute(t, "test", root, "--bench", "--run", "a_claim", "-o", "json")
	var report struct {
		Suites []struct {
			Results []struct {
				Runs              int
				NanosecondsPerRun float64
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Suites) != 1 || report.Suites[0].Results[0].Runs == 0 || report.Suites[0].Results[0].NanosecondsPerRun <= 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestTest_FlagsThatExcludeEachOther_AreExplained(t *testing.T) {
	for want, args := range map[string][]string{
		"--bench measures evaluations: omit --coverage":          {"--bench", "--coverage"},
		"omit --coverage, --threshold, --var-values and --watch": {"--bench", "--watch"},
		"--var-values can't be combined":                         {"--var-values", "--threshold", "90"},
	} {
		if out, err := execute(t, append([]string{"test", testFolder(t, nil)}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
