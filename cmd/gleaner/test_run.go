package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/policytest"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// outcome is how a test came out.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

// testResult is one test: a rule, or a case put to one module.
type testResult struct {
	Name    string  `json:"name"`
	File    string  `json:"file"`
	Line    int     `json:"line,omitempty"` // 0: not known
	Outcome outcome `json:"outcome"`
	Message string  `json:"message,omitempty"` // why it failed
	Output  string  `json:"output,omitempty"`  // of print

	// Of cases.
	Module   string           `json:"module,omitempty"`
	Hook     hostabi.Hook     `json:"hook,omitempty"`
	Decision hostabi.Decision `json:"decision,omitempty"`
	Reason   string           `json:"reason,omitempty"`
	Action   string           `json:"action,omitempty"` // that the operator would take
}

// testSuite is a folder of Rego, or a file of cases.
type testSuite struct {
	Name     string         `json:"name"`
	Kind     string         `json:"kind"` // rego or cases
	Seconds  float64        `json:"seconds"`
	Results  []testResult   `json:"results"`
	Coverage []testCoverage `json:"coverage,omitempty"`
	Broken   string         `json:"broken,omitempty"` // why there are no results, or not all
}

// testCoverage is what tests reached of a file.
type testCoverage struct {
	File    string  `json:"file"`
	Percent float64 `json:"percent"` // of lines
	Missed  []int   `json:"missed"`  // lines
	covered int     // lines
}

// matches reports whether a test of this name is to be run.
func (o testOptions) matches(name string) bool { return o.run == nil || o.run.MatchString(name) }

// runRego runs the tests of a folder of Rego.
func runRego(ctx context.Context, target testTarget, o testOptions) testSuite {
	suite := testSuite{Name: target.name(), Kind: "rego", Results: []testResult{}}
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
	report, err := rego.Test(ctx, files, documents...)
	switch {
	case ctx.Err() != nil:
		suite.Broken = context.Cause(ctx).Error()
	case err != nil:
		suite.Broken = err.Error()
	}
	for _, r := range report.Results {
		if o.matches(r.Name) {
			suite.Results = append(suite.Results, ofRule(r))
		}
	}
	if o.coverage {
		for _, c := range report.Coverage {
			suite.Coverage = append(suite.Coverage, coverageOf(c))
		}
	}
	return suite
}

func ofRule(r rego.TestResult) testResult {
	result := testResult{Name: r.Name, File: r.File, Line: r.Line, Outcome: passed, Output: r.Output}
	switch {
	case r.Error != "":
		result.Outcome, result.Message = failed, r.Error
	case r.Failed:
		result.Outcome, result.Message = failed, "the rule is not true: a line in it is false or undefined"
	case r.Skipped:
		result.Outcome = skipped
	}
	return result
}

func coverageOf(c rego.FileCoverage) testCoverage {
	lines := c.Covered + len(c.Missed)
	coverage := testCoverage{File: c.File, Percent: 100, Missed: append([]int{}, c.Missed...), covered: c.Covered}
	if lines != 0 {
		coverage.Percent = 100 * float64(c.Covered) / float64(lines)
	}
	return coverage
}

// runCases puts the cases of a file to the modules that it names.
func runCases(ctx context.Context, file string, o testOptions) testSuite {
	suite := testSuite{Name: file, Kind: "cases", Results: []testResult{}}
	read, err := policytest.LoadSuite(file)
	switch {
	case err != nil:
		suite.Broken = err.Error()
		return suite
	case len(read.Modules) == 0:
		suite.Broken = file + " names no module: write module: policy.rego, or the like, at its top"
		return suite
	}
	for _, name := range read.Modules {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), name)
		}
		m, err := loadModule(ctx, sandbox.Limits{}, []string{path})
		if err != nil {
			suite.Broken = fmt.Sprintf("%s: module %s: %v", file, name, err)
			return suite
		}
		policy := askedModule{m, name}
		for _, c := range read.Cases {
			if o.matches(c.Name) {
				suite.Results = append(suite.Results, policy.answer(ctx, file, c))
			}
		}
		m.close()
		if ctx.Err() != nil {
			suite.Broken = context.Cause(ctx).Error()
			return suite
		}
	}
	return suite
}

// askedModule makes a policy of a module.
type askedModule struct {
	*loaded
	name string
}

// Name implements policies.Evaluator.
func (m askedModule) Name() string { return m.name }

// Evaluate implements policies.Evaluator.
func (m askedModule) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	a, err := m.ask(ctx, r)
	return a.verdict, err
}

// answer puts one case to the module.
func (m askedModule) answer(ctx context.Context, file string, c policytest.Case) testResult {
	result := testResult{Name: c.Name, File: file, Line: c.Line, Outcome: passed, Module: m.name, Hook: c.Request.Hook}
	verdict, err := policytest.Ask(ctx, m, c)
	if err != nil {
		result.Outcome, result.Message = failed, err.Error()
	}
	result.Decision, result.Reason = verdict.Decision, verdict.Reason
	result.Action = actionOn(ctx, c.Request, verdict)
	return result
}
