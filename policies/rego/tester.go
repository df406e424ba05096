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
	"github.com/open-policy-agent/opa/v1/topdown"
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

	Values string // of variables in the line that failed, with TestOptions.Values

	// With TestOptions.Benchmark: how often it was evaluated, and the time of one evaluation.
	Runs   int
	PerRun time.Duration
}

// TestOptions are what Test does in addition. The zero value only runs the tests.
type TestOptions struct {
	Values    bool                   // show the values of variables in the line because of which a test failed; without coverage
	Benchmark func(name string) bool // evaluate the tests that pass and that it selects for about a second each, and measure that; may be nil
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
func Test(ctx context.Context, o TestOptions, files []File, documents ...Document) (TestReport, error) {
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
	return o.run(ctx, modules, all, data)
}

// run runs the tests in modules, which need all to compile, with data.
func (o TestOptions) run(ctx context.Context, modules, all map[string]*ast.Module, data map[string]any) (TestReport, error) {
	store := inmem.NewFromObject(data)
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return TestReport{}, fmt.Errorf("read data: %w", err)
	}
	defer store.Abort(ctx, txn)
	runner := func() *tester.Runner {
		compiler := ast.NewCompiler().
			WithCapabilities(language()).
			WithDefaultRegoVersion(ast.RegoV1).
			WithPathConflictsCheck(storage.NonEmpty(ctx, store, txn)).
			WithEnablePrintStatements(true)
		return tester.NewRunner().SetCompiler(compiler).SetStore(store).SetModules(all).SetTimeout(testTimeout).CapturePrintOutput(true)
	}
	covered := cover.New()
	var results chan *tester.Result
	if o.Values { // OPA has one tracer at a time
		results, err = runner().EnableTracing(true).RunTests(ctx, txn)
	} else {
		results, err = runner().SetCoverageQueryTracer(covered).RunTests(ctx, txn)
	}
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
	if !o.Values {
		report.Coverage = coverage(covered.Report(modules), modules)
	}
	if o.Benchmark != nil {
		if err := o.measure(ctx, runner(), txn, report.Results); err != nil {
			return report, err
		}
	}
	return report, ctx.Err()
}

func nameOf(r *tester.Result) string { return strings.TrimPrefix(r.Package, "data.") + "." + r.Name }

// measure measures the tests that passed.
func (o TestOptions) measure(ctx context.Context, runner *tester.Runner, txn storage.Transaction, passed []TestResult) error {
	byName := map[string]*TestResult{}
	var selected []ast.Ref
	for i := range passed {
		t := &passed[i]
		if t.Failed || t.Skipped || t.Error != "" || !o.Benchmark(t.Name) {
			continue
		}
		reference, err := ast.ParseRef("data." + t.Name)
		if err != nil {
			return fmt.Errorf("measure %s: %w", t.Name, err)
		}
		byName[t.Name], selected = t, append(selected, reference)
	}
	if len(selected) == 0 {
		return nil
	}
	results, err := runner.SetPrefixMatchers(selected...).RunBenchmarks(ctx, txn, tester.BenchmarkOptions{})
	if err != nil {
		return explain(err)
	}
	for r := range results {
		if t := byName[nameOf(r)]; t != nil && r.BenchmarkResult != nil && r.BenchmarkResult.N > 0 {
			t.Runs, t.PerRun = r.BenchmarkResult.N, r.BenchmarkResult.T/time.Duration(r.BenchmarkResult.N)
		}
	}
	return nil
}

func testResult(r *tester.Result) TestResult {
	result := TestResult{
		File:    r.Location.File,
		Line:    r.Location.Row,
		Name:    nameOf(r),
		Failed:  r.Fail,
		Skipped: r.Skip,
		Output:  string(r.Output),
	}
	if r.Error != nil {
		result.Error = r.Error.Error()
	}
	if r.Fail {
		result.Values = valuesIn(r.Trace)
	}
	for names, sub := range r.SubResults.Iter {
		if sub.Fail {
			result.Error = fmt.Sprintf("case %s failed", strings.Join(names, "/"))
		}
	}
	return result
}

// valuesIn returns the line of the last expression that failed in a trace, with the values of its variables, as OPA shows them.
func valuesIn(trace []*topdown.Event) string {
	for _, e := range slices.Backward(trace) {
		if e.Op != topdown.FailOp || e.Location == nil || e.QueryID == 0 {
			continue
		}
		if expression, ok := e.Node.(*ast.Expr); ok {
			if _, isEvery := expression.Terms.(*ast.Every); isEvery {
				continue // an expression in it failed before
			}
		}
		var text strings.Builder
		fmt.Fprintf(&text, "%s:%d:\n", e.Location.File, e.Location.Row)
		if err := topdown.PrettyEvent(&text, e, topdown.PrettyEventOpts{PrettyVars: true}); err != nil {
			return ""
		}
		return text.String()
	}
	return ""
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
