package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/policies/policytest"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// outcome is the result of a test.
type outcome string

const (
	passed  outcome = "pass"
	Failed  outcome = "fail"
	skipped outcome = "skip"
)

// Result is the result of one test: a rule, or a case evaluated by one module.
type Result struct {
	Name    string  `json:"name"`
	File    string  `json:"file"`
	Line    int     `json:"line,omitempty"` // 0: unknown
	Outcome outcome `json:"outcome"`
	Message string  `json:"message,omitempty"` // why it failed
	Output  string  `json:"output,omitempty"`  // of print
	Values  string  `json:"values,omitempty"`  // of variables, where it failed: with --var-values

	// With --bench.
	Runs        int     `json:"runs,omitempty"`
	NanosPerRun float64 `json:"nanosecondsPerRun,omitempty"`

	// Of cases.
	Module   string           `json:"module,omitempty"`
	Hook     hostabi.Hook     `json:"hook,omitempty"`
	Decision hostabi.Decision `json:"decision,omitempty"`
	Reason   string           `json:"reason,omitempty"`
	Action   string           `json:"action,omitempty"` // of the operator for the verdict
}

// Suite is a directory of Rego, or a file of cases.
type Suite struct {
	Name     string     `json:"name"`
	Kind     string     `json:"kind"` // rego or cases
	Seconds  float64    `json:"seconds"`
	Results  []Result   `json:"results"`
	Coverage []Coverage `json:"coverage,omitempty"`
	Broken   string     `json:"broken,omitempty"` // why results are missing
}

// Coverage is the coverage of a file.
type Coverage struct {
	File    string  `json:"file"`
	Percent float64 `json:"percent"` // of lines
	Missed  []int   `json:"missed"`  // lines
	covered int     // lines
}

// matches reports whether --run selects a test.
func (o options) matches(name string) bool { return o.run == nil || o.run.MatchString(name) }

// runRego runs the Rego tests of a directory.
func runRego(ctx context.Context, target target, o options) Suite {
	suite := Suite{Name: target.name(), Kind: "rego", Results: []Result{}}
	var files []rego.File
	for _, path := range target.rego {
		text, err := os.ReadFile(path)
		if err != nil {
			suite.Broken = err.Error()
			return suite
		}
		files = append(files, rego.File{Name: path, Text: string(text)})
	}
	documents, err := target.documents()
	if err != nil {
		suite.Broken = err.Error()
		return suite
	}
	additional := rego.TestOptions{Values: o.values}
	if o.bench {
		additional.Benchmark = o.matches
	}
	report, err := rego.Test(ctx, additional, files, documents...)
	switch {
	case ctx.Err() != nil:
		suite.Broken = context.Cause(ctx).Error()
	case err != nil:
		suite.Broken = err.Error()
	}
	for _, r := range report.Results {
		if o.matches(r.Name) {
			suite.Results = append(suite.Results, resultOfRule(r))
		}
	}
	if o.coverage {
		for _, c := range report.Coverage {
			suite.Coverage = append(suite.Coverage, coverageOf(c))
		}
	}
	return suite
}

func resultOfRule(r rego.TestResult) Result {
	result := Result{Name: r.Name, File: r.File, Line: r.Line, Outcome: passed, Output: r.Output, Values: r.Values, Runs: r.Runs, NanosPerRun: float64(r.PerRun)}
	switch {
	case r.Error != "":
		result.Outcome, result.Message = Failed, r.Error
	case r.Failed:
		result.Outcome, result.Message = Failed, "the rule is not true: a line in it is false or undefined"
	case r.Skipped:
		result.Outcome = skipped
	}
	return result
}

func coverageOf(c rego.FileCoverage) Coverage {
	lines := c.Covered + len(c.Missed)
	coverage := Coverage{File: c.File, Percent: 100, Missed: append([]int{}, c.Missed...), covered: c.Covered}
	if lines != 0 {
		coverage.Percent = 100 * float64(c.Covered) / float64(lines)
	}
	return coverage
}

// runCases evaluates the cases of a file with the modules that it names.
func runCases(ctx context.Context, file string, o options) Suite {
	suite := Suite{Name: file, Kind: "cases", Results: []Result{}}
	read, err := policytest.LoadSuite(file)
	switch {
	case err != nil:
		suite.Broken = err.Error()
		return suite
	case len(read.Modules) == 0:
		suite.Broken = file + " does not name a module: write, for example, module: policy.rego at its top"
		return suite
	}
	for _, name := range read.Modules {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), name)
		}
		m, err := loader.Load(ctx, sandbox.Limits{}, []string{path})
		if err != nil {
			suite.Broken = fmt.Sprintf("%s: module %s: %v", file, name, err)
			return suite
		}
		policy := moduleEvaluator{m, name}
		for _, c := range read.Cases {
			if o.matches(c.Name) {
				result := policy.runCase(ctx, file, c)
				if o.bench && result.Outcome == passed {
					result.measure(ctx, policy, c)
				}
				suite.Results = append(suite.Results, result)
			}
		}
		m.Close()
		if ctx.Err() != nil {
			suite.Broken = context.Cause(ctx).Error()
			return suite
		}
	}
	return suite
}

// moduleEvaluator implements policies.Evaluator with a module.
type moduleEvaluator struct {
	*loader.Module
	name string
}

// Name implements policies.Evaluator.
func (m moduleEvaluator) Name() string { return m.name }

// Evaluate implements policies.Evaluator.
func (m moduleEvaluator) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	a, err := m.Module.Evaluate(ctx, r)
	return a.Verdict, err
}

// runCase evaluates one case.
func (m moduleEvaluator) runCase(ctx context.Context, file string, c policytest.Case) Result {
	result := Result{Name: c.Name, File: file, Line: c.Line, Outcome: passed, Module: m.name, Hook: c.Request.Hook}
	verdict, err := policytest.Evaluate(ctx, m, c)
	if problems := m.Settings.Problems(c.Request.Policy.Settings); err == nil && problems != "" && c.Request.Hook != hostabi.HookValidate {
		err = fmt.Errorf("the module would reject these settings: %s", problems)
	}
	if err != nil {
		result.Outcome, result.Message = Failed, err.Error()
	}
	result.Decision, result.Reason = verdict.Decision, verdict.Reason
	result.Action = actionOn(ctx, c.Request, verdict)
	return result
}

// benchTime is how long a case is evaluated with --bench, as for Rego tests.
const benchTime = time.Second

// measure evaluates a case again and again.
func (r *Result) measure(ctx context.Context, m moduleEvaluator, c policytest.Case) {
	began := time.Now()
	for n := 1; ; n++ {
		if _, err := policytest.Evaluate(ctx, m, c); err != nil {
			r.Outcome, r.Message = Failed, fmt.Sprintf("evaluation %d: %v", n, err)
			return
		}
		if took := time.Since(began); took >= benchTime {
			r.Runs, r.NanosPerRun = n, float64(took)/float64(n)
			return
		}
	}
}
