package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// testOptions are the flags of gleaner test.
type testOptions struct {
	run       *regexp.Regexp // nil: all
	verbose   bool
	output    string
	coverage  bool
	threshold float64 // percent of lines; 0: any
	watch     bool
	timeout   time.Duration
}

func testCommand() *cobra.Command {
	o := testOptions{output: "text", timeout: 5 * time.Minute}
	var from fromOptions
	var run string
	cmd := &cobra.Command{
		Use:   "test [PATH...]",
		Short: "Run the tests of policies, without a cluster",
		Long: "Run the tests of policies, without a cluster. Folders are searched with all that is below them, the\n" +
			"current one if none is named, for two kinds of tests:\n\n" +
			"  Rego   every rule that begins with test_, with the files of its folder, as \"opa test --bundle\" runs\n" +
			"         them: data.json and data.yaml, there and below, are data for the tests\n" +
			"  cases  YAML files with cases, each a request and the verdict that has to come of it, and\n" +
			"         module: policy.rego or policy.wasm at their top, from their own folder\n\n" +
			"It exits with 1 if a test fails, and with 2 if a file can't be read or there is nothing to test.\n\n" +
			"With --from it runs nothing, and makes what a module was asked in a cluster into cases.",
		Example: `  gleaner test
  gleaner test policies --run claim -v
  gleaner test --watch
  gleaner test --threshold 90
  gleaner test --from records.json --module policy.rego -o cases.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := from.check(cmd, args); err != nil {
				return err
			}
			if from.file != "" {
				return from.write(cmd, changed(cmd, "output"))
			}
			if err := o.complete(run); err != nil {
				return err
			}
			if o.watch {
				return o.testOnChange(cmd, args)
			}
			return o.test(cmd, args)
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown := new(pflag.NotExistError); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "run" {
			return usageError{errors.New("-run is --run here, with two dashes")}
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
	cmd.Flags().StringVar(&run, "run", "", "run only the tests and cases whose name matches the regular `expression`")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "show all tests, with what was decided and what the operator would do")
	cmd.Flags().StringVarP(&o.output, "output", "o", o.output, "text, json or junit; with --from, the file to write")
	cmd.Flags().BoolVar(&o.coverage, "coverage", false, "show which lines of Rego its tests have not reached")
	cmd.Flags().Float64Var(&o.threshold, "threshold", 0, "minimum `percent`age of lines of Rego that its tests reach; with less, exit with 1. Implies --coverage; 0 disables the check")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "run the tests again whenever a file changes, until interrupted")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "how long all of it may take")
	from.add(cmd)
	return cmd
}

// changed is the value of a flag that was set, or else nothing.
func changed(cmd *cobra.Command, flag string) string {
	if f := cmd.Flags().Lookup(flag); f.Changed {
		return f.Value.String()
	}
	return ""
}

func (o *testOptions) complete(run string) error {
	if _, known := testReporters[o.output]; !known {
		return usageError{fmt.Errorf("--output=%s: use text, json or junit", o.output)}
	}
	if o.timeout <= 0 {
		return usageError{fmt.Errorf("--timeout=%s: use 1s or more", o.timeout)}
	}
	if !(o.threshold >= 0 && o.threshold <= 100) {
		return usageError{fmt.Errorf("--threshold=%v: use a percentage from 0 to 100", o.threshold)}
	}
	if o.watch && o.output != "text" {
		return usageError{fmt.Errorf("--watch shows text: leave --output=%s out", o.output)}
	}
	o.coverage = o.coverage || o.threshold > 0
	if run == "" {
		return nil
	}
	if o.coverage {
		return usageError{errors.New("--coverage and --threshold are of all tests: leave --run out")}
	}
	var err error
	if o.run, err = regexp.Compile(run); err != nil {
		return usageError{fmt.Errorf("--run: %w", err)}
	}
	return nil
}

// test finds the tests, runs them and reports on them.
func (o *testOptions) test(cmd *cobra.Command, paths []string) error {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	targets, err := findTests(paths)
	if err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout, fmt.Errorf("it took longer than --timeout=%s", o.timeout))
	defer cancel()
	report := testReporters[o.output](cmd.OutOrStdout(), *o)
	var suites []testSuite
	for _, target := range targets {
		began := time.Now()
		suite := target.run(ctx, *o)
		suite.Seconds = time.Since(began).Seconds()
		if len(suite.Results) == 0 && suite.Broken == "" {
			continue
		}
		suites = append(suites, suite)
		if err := report.suite(suite); err != nil {
			return err
		}
		if ctx.Err() != nil {
			break // the suite says so
		}
	}
	if err := report.end(suites); err != nil {
		return err
	}
	return o.judge(ctx, suites)
}

// judge makes the exit code of what came out.
func (o *testOptions) judge(ctx context.Context, suites []testSuite) error {
	tally, broken := tallyOf(suites), 0
	for _, s := range suites {
		if s.Broken != "" {
			broken++
		}
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the tests did not end: %w", context.Cause(ctx))
	case broken != 0:
		return usageError{fmt.Errorf("%s can't be tested", counted(broken, "file or folder", "files or folders"))}
	case tally.failed != 0:
		return fmt.Errorf("%d of %s failed", tally.failed, counted(tally.total(), "test", "tests"))
	case tally.total() == 0 && o.run != nil:
		return usageError{fmt.Errorf("no test matches --run=%s", o.run)}
	case tally.total() == 0:
		return usageError{errNoTests}
	}
	return o.judgeCoverage(suites)
}

// judgeCoverage compares what the tests reached with --threshold.
func (o *testOptions) judgeCoverage(suites []testSuite) error {
	covered, lines := 0, 0
	for _, s := range suites {
		for _, c := range s.Coverage {
			covered += c.covered
			lines += c.covered + len(c.Missed)
		}
	}
	if o.threshold == 0 {
		return nil
	}
	if lines == 0 {
		return usageError{errors.New("--threshold is of Rego, and no test of Rego was run: write a rule that begins with test_, or leave --threshold out")}
	}
	if percent := 100 * float64(covered) / float64(lines); percent < o.threshold {
		return fmt.Errorf("the tests reach %.1f%% of lines of Rego, less than --threshold=%v", percent, o.threshold)
	}
	return nil
}

// errNoTests says what to write.
var errNoTests = errors.New(`there is nothing to test. Write a rule that begins with test_ into policy_test.rego, beside policy.rego:
	test_a_claim_stays if collect.decision == "Orphan" with input.object.kind as "PersistentVolumeClaim"
or cases.yaml:
	module: policy.rego
	cases:
	- name: a claim stays
	  request: {hook: collect, object: {kind: PersistentVolumeClaim}}
	  want: {decision: Orphan}`)

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
