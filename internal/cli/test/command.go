// Package test implements gleaner test.
package test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// options are the flags of gleaner test.
type options struct {
	run       *regexp.Regexp // nil: all
	verbose   bool
	output    string
	coverage  bool
	threshold float64 // percent of lines; 0: any
	watch     bool
	values    bool // of variables
	bench     bool
	timeout   time.Duration
}

// Command returns the command gleaner test.
func Command() *cobra.Command {
	o := options{output: "text", timeout: 5 * time.Minute}
	var from fromOptions
	var run string
	cmd := &cobra.Command{
		Use:   "test [PATH...]",
		Short: "Run the tests of policies without a cluster",
		Long: "Run the tests of policies without a cluster. Directories are searched recursively, by default the\n" +
			"current one, for two kinds of tests:\n\n" +
			"  Rego   rules whose names begin with test_, run with all files of their directory as by\n" +
			"         \"opa test --bundle\": data.json and data.yaml, there and below, are data for the tests\n" +
			"  cases  YAML files with cases, each a request and the expected verdict, and at the top\n" +
			"         module: policy.rego or policy.wasm, a path relative to the file\n\n" +
			"Exit codes: 0 if all tests pass; 1 if a test fails; 2 if a file can't be read or there are no tests.\n\n" +
			"With --from, no tests are run: recorded requests and verdicts are converted to cases.",
		Example: `  gleaner test
  gleaner test policies --run claim -v
  gleaner test --watch
  gleaner test --threshold 90
  gleaner test --var-values                 # why does a rule fail?
  gleaner test --bench --run claim
  gleaner test --from records.json --module policy.rego -o cases.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := from.check(cmd, args); err != nil {
				return err
			}
			if from.file != "" {
				return from.write(cmd, changedFlag(cmd, "output"))
			}
			if err := o.complete(run); err != nil {
				return err
			}
			if o.watch {
				return o.runOnChange(cmd, args)
			}
			return o.test(cmd, args)
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown := new(pflag.NotExistError); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "run" {
			return exit.AsUsage(errors.New("unknown flag -run: use --run, with two dashes"))
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
	cmd.Flags().StringVar(&run, "run", "", "run only tests and cases whose name matches the regular `expression`")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "show all tests, with the decision and the resulting action of the operator")
	cmd.Flags().StringVarP(&o.output, "output", "o", o.output, "output `format`: text, json or junit; with --from, the file to write")
	cmd.Flags().BoolVar(&o.coverage, "coverage", false, "show the lines of Rego that the tests do not cover")
	cmd.Flags().Float64Var(&o.threshold, "threshold", 0, "minimum `percent`age of lines of Rego that the tests cover; exit with 1 if it is lower. Implies --coverage; 0 disables the check")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "run the tests again whenever a file changes, until interrupted")
	cmd.Flags().BoolVar(&o.values, "var-values", false, "show the line of Rego because of which a test failed, with the values of its variables")
	cmd.Flags().BoolVar(&o.bench, "bench", false, "evaluate each test and case that passes for a second, and show how long one evaluation takes: cases in the sandbox of the operator, rules with OPA's evaluator")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "maximum time for all tests")
	from.add(cmd)
	return cmd
}

// changedFlag returns the value of a flag if it was set, or else "".
func changedFlag(cmd *cobra.Command, flag string) string {
	if f := cmd.Flags().Lookup(flag); f.Changed {
		return f.Value.String()
	}
	return ""
}

func (o *options) complete(run string) error {
	if _, known := reporters[o.output]; !known {
		return exit.AsUsage(fmt.Errorf("--output=%s: use text, json or junit", o.output))
	}
	if o.timeout <= 0 {
		return exit.AsUsage(fmt.Errorf("--timeout=%s: use 1s or more", o.timeout))
	}
	if !(o.threshold >= 0 && o.threshold <= 100) {
		return exit.AsUsage(fmt.Errorf("--threshold=%v: use a percentage from 0 to 100", o.threshold))
	}
	if o.watch && o.output != "text" {
		return exit.AsUsage(fmt.Errorf("--watch requires text output: omit --output=%s", o.output))
	}
	o.coverage = o.coverage || o.threshold > 0
	switch {
	case o.bench && (o.coverage || o.values || o.watch):
		return exit.AsUsage(errors.New("--bench measures evaluations: omit --coverage, --threshold, --var-values and --watch"))
	case o.values && o.coverage:
		return exit.AsUsage(errors.New("--var-values can't be combined with --coverage and --threshold: run the tests once with each"))
	}
	if run == "" {
		return nil
	}
	if o.coverage {
		return exit.AsUsage(errors.New("--coverage and --threshold require all tests: omit --run"))
	}
	var err error
	if o.run, err = regexp.Compile(run); err != nil {
		return exit.AsUsage(fmt.Errorf("--run: %w", err))
	}
	return nil
}

// test finds the tests, runs them and reports on them.
func (o *options) test(cmd *cobra.Command, paths []string) error {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	targets, err := findTests(paths)
	if err != nil {
		return exit.AsUsage(err)
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout, fmt.Errorf("--timeout=%s exceeded", o.timeout))
	defer cancel()
	report := reporters[o.output](cmd.OutOrStdout(), *o)
	var suites []Suite
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
			break // the suite reports it
		}
	}
	if err := report.end(suites); err != nil {
		return err
	}
	return o.exitError(ctx, suites)
}

// exitError returns the exit code for the results.
func (o *options) exitError(ctx context.Context, suites []Suite) error {
	tally, broken := tallyOf(suites), 0
	for _, s := range suites {
		if s.Broken != "" {
			broken++
		}
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the tests did not complete: %w", context.Cause(ctx))
	case broken != 0:
		return exit.AsUsage(fmt.Errorf("%s can't be tested", printer.Count(broken, "file or directory", "files or directories")))
	case tally.failed != 0:
		return fmt.Errorf("%d of %s failed", tally.failed, printer.Count(tally.total(), "test", "tests"))
	case tally.total() == 0 && o.run != nil:
		return exit.AsUsage(fmt.Errorf("no test matches --run=%s", o.run))
	case tally.total() == 0:
		return exit.AsUsage(errNoTests)
	}
	return o.checkCoverage(suites)
}

// checkCoverage compares the coverage with --threshold.
func (o *options) checkCoverage(suites []Suite) error {
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
		return exit.AsUsage(errors.New("--threshold applies to Rego, and no Rego test was run: write a rule whose name begins with test_, or omit --threshold"))
	}
	if percent := 100 * float64(covered) / float64(lines); percent < o.threshold {
		return fmt.Errorf("the tests cover %.1f%% of the lines of Rego, less than --threshold=%v", percent, o.threshold)
	}
	return nil
}

// errNoTests includes examples of tests.
var errNoTests = errors.New(`no tests found. Write a rule whose name begins with test_ in policy_test.rego, next to policy.rego:
	test_a_claim_stays if collect.decision == "Orphan" with input.object.kind as "PersistentVolumeClaim"
or cases.yaml:
	module: policy.rego
	cases:
	- name: a claim stays
	  request: {hook: collect, object: {kind: PersistentVolumeClaim}}
	  want: {decision: Orphan}`)
