package rego

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
)

// testTimeout is the timeout of one test of a policy.
const testTimeout = 10 * time.Second

// TestResult is the result of one test of a policy. It passed unless Failed,
// Skipped or Error is set.
type TestResult struct {
	File    string
	Line    int
	Name    string // package and rule, such as gleaner_test.test_keeps_volumes
	Failed  bool
	Skipped bool
	Error   string // why it did not finish
	Output  string // of print
}

// FileCoverage is the test coverage of one file of a policy.
type FileCoverage struct {
	File    string
	Covered int   // lines
	Missed  []int // lines that no test reached
}

// TestReport contains the results of the tests of a policy, in the order of its
// files.
type TestReport struct {
	Results  []TestResult
	Coverage []FileCoverage
}

// Passed reports whether there were tests, and none failed.
func (r TestReport) Passed() bool {
	failed := func(t TestResult) bool { return t.Failed || t.Error != "" }
	return len(r.Results) > 0 && !slices.ContainsFunc(r.Results, failed)
}

// Test runs the tests of a policy with OPA's tester: every rule that begins with
// test_, in any of the files. opa test gives the same results for these files
// together with the library. Tests run on OPA's evaluator, without limits. The
// documents are available to tests only.
func Test(ctx context.Context, files []File, documents ...Document) (TestReport, error) {
	modules, err := parse(files, true)
	if err != nil {
		return TestReport{}, err
	}
	all, err := withLibrary(modules)
	if err != nil {
		return TestReport{}, err
	}
	data, err := merge(documents)
	if err != nil {
		return TestReport{}, err
	}
	if len(documents) != 0 {
		if err := checkUse(modules, all); err != nil {
			return TestReport{}, err
		}
	}
	return runTests(ctx, modules, all, data)
}

// runTests runs the tests in modules, which need all to compile, with data.
func runTests(ctx context.Context, modules, all map[string]*ast.Module, data map[string]any) (TestReport, error) {
	store := inmem.NewFromObject(data)
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return TestReport{}, fmt.Errorf("read data: %w", err)
	}
	defer store.Abort(ctx, txn)
	compiler := ast.NewCompiler().
		WithCapabilities(language()).
		WithDefaultRegoVersion(ast.RegoV1).
		WithPathConflictsCheck(storage.NonEmpty(ctx, store, txn)).
		WithEnablePrintStatements(true)
	covered := cover.New()
	runner := tester.NewRunner().
		SetCompiler(compiler).
		SetStore(store).
		SetModules(all).
		SetTimeout(testTimeout).
		SetCoverageQueryTracer(covered).
		CapturePrintOutput(true)
	results, err := runner.RunTests(ctx, txn)
	if err != nil {
		return TestReport{}, explain(err)
	}
	var report TestReport
	for result := range results {
		if _, ok := modules[result.Location.File]; ok {
			report.Results = append(report.Results, testResult(result))
		}
	}
	slices.SortFunc(report.Results, func(a, b TestResult) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Name, b.Name))
	})
	report.Coverage = coverage(covered.Report(modules), modules)
	return report, ctx.Err()
}

func testResult(r *tester.Result) TestResult {
	result := TestResult{
		File:    r.Location.File,
		Line:    r.Location.Row,
		Name:    strings.TrimPrefix(r.Package, "data.") + "." + r.Name,
		Failed:  r.Fail,
		Skipped: r.Skip,
		Output:  string(r.Output),
	}
	if r.Error != nil {
		result.Error = r.Error.Error()
	}
	for names, sub := range r.SubResults.Iter {
		if sub.Fail {
			result.Error = fmt.Sprintf("case %s failed", strings.Join(names, "/"))
		}
	}
	return result
}

// coverage returns the coverage of files other than tests.
func coverage(report cover.Report, modules map[string]*ast.Module) []FileCoverage {
	var files []FileCoverage
	for _, name := range sortedKeys(modules) {
		of, ok := report.Files[name]
		if !ok || isTest(name) {
			continue
		}
		file := FileCoverage{File: name, Covered: of.CoveredLines}
		for _, r := range of.NotCovered {
			for row := r.Start.Row; row <= r.End.Row; row++ {
				if !slices.Contains(file.Missed, row) {
					file.Missed = append(file.Missed, row)
				}
			}
		}
		slices.Sort(file.Missed)
		files = append(files, file)
	}
	return files
}
