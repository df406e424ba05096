// Command bench compares Gleaner with the garbage collector of
// kube-controller-manager, that collector with and without Gleaner as its companion, and
// finalizers with a handwritten controller: in turn, on the same control plane, in
// one run.
//
// Absolute figures depend on the machine; look at the ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/devcluster"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == handwrittenCommand {
		if err := runHandwritten(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench: "+handwrittenCommand+":", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	objects := flag.Int("objects", 2000, "number of dependents of one owner to collect")
	large := flag.Int("large", 100_000, "number of objects in the cluster for measuring memory; 0 skips this")
	finalized := flag.Int("finalized", 1000, "number of objects with a finalizer to delete by one call")
	owners := flag.Int("owners", 1000, "number of governed owners to delete in parallel in companion mode")
	rounds := flag.Int("rounds", 3, "number of measurements of each figure; the median is shown")
	binary := flag.String("gleaner", "bin/gleaner", "gleaner binary to measure")
	pprof := flag.String("pprof", "0", "loopback address for Gleaner's profiles, such as 127.0.0.1:6060; 0 disables them")
	only := flag.String("only", strings.Join(byDefault, ","), "what to measure, separated by commas; also possible: archive,budgets,million,modules")
	scenarios := flag.String("scenarios", "", "scenarios of companion mode to measure, as a regular expression, with what they are compared with; empty means all")
	keep := flag.Bool("record", false, "replace the figures in "+recordFile+", with which later runs are compared")
	flag.Parse()
	klog.SetOutput(os.Stderr)
	ctrl.SetLogger(klog.Background())
	r := report{}
	s := settings{
		objects: *objects, large: *large, finalized: *finalized, owners: *owners, rounds: *rounds, binary: *binary, pprof: *pprof,
		only: strings.Split(*only, ","),
	}
	var err error
	if s.scenarios, err = regexp.Compile(*scenarios); err != nil {
		fmt.Fprintln(os.Stderr, "bench: -scenarios:", err)
		os.Exit(1)
	}
	if err := measure(ctx, &r, s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, "\n%s, %d cores, %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version())
	r.print(os.Stdout)
	if err := compare(&r, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// compare compares a run with the recorded one, and records it if that is wanted.
func compare(r *report, keep bool) error {
	recorded, err := readRecord(recordFile)
	if err != nil {
		return err
	}
	now := r.comparable()
	if recorded != nil {
		recorded.printChanges(os.Stdout, now)
	}
	if !keep {
		return nil
	}
	return record{
		Date: time.Now().UTC().Format(time.DateOnly), Machine: fmt.Sprintf("%d cores, %s", runtime.NumCPU(), runtime.Version()), Figures: now,
	}.write(recordFile)
}

type settings struct {
	objects, large, finalized, owners, rounds int

	binary, pprof string
	only          []string
	scenarios     *regexp.Regexp
}

// byDefault are the parts that are measured by default, and parts all values of -only.
var (
	byDefault = []string{"throughput", "policies", "finalizers", "companion", "delay", "commands", "memory", "load", "large"}
	parts     = append(slices.Clone(byDefault), "archive", "budgets", "modules", "million")
)

// budget limits the calls per second of a collector.
type budget struct {
	name  string
	calls int // 0: unlimited
}

// budgets are upstream's default and no limit. The collector in
// kube-controller-manager uses twice --kube-api-qps.
var budgets = []budget{{"40 calls/s", 40}, {"unlimited", 0}}

func measure(ctx context.Context, r *report, s settings) error {
	for _, part := range s.only {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("-only=%s: use some of %s", part, strings.Join(parts, ","))
		}
	}
	for _, b := range budgets {
		if err := measureBudget(ctx, r, s, b); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

// measureBudget measures all parts without a limit, and only the throughput with
// one.
func measureBudget(ctx context.Context, r *report, s settings, b budget) error {
	flags := []string{"--kube-api-qps=20", "--kube-api-burst=30"}
	if b.calls == 0 {
		flags = []string{"--kube-api-qps=10000", "--kube-api-burst=20000"}
	} else if !slices.Contains(s.only, "throughput") {
		return nil
	}
	cluster, err := devcluster.Start(ctx, devcluster.Options{
		NoControllerManager: true, ControllerManagerFlags: flags, Progress: os.Stderr,
	})
	if err != nil {
		return err
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: stop cluster:", err)
		}
	}()
	f, err := newTestbed(cluster, s)
	if err != nil {
		return err
	}
	all := map[string]func(context.Context, *report, budget) error{
		"throughput": throughputBench{f}.throughput, "large": throughputBench{f}.throughputOfMany, "policies": policyBench{f}.policies,
		"finalizers": finalizerBench{f}.finalizers, "companion": companionBench{f}.measureCompanion, "load": loadBench{f}.load,
		"delay": atRestBench{f}.delays, "memory": atRestBench{f}.memory, "modules": loadBench{f}.modules, "million": atRestBench{f}.million,
		"commands": atRestBench{f}.commands, "archive": archiveBench{f}.archive, "budgets": policyBench{f}.budgets,
	}
	for _, part := range parts {
		if !slices.Contains(s.only, part) || b.calls != 0 && part != "throughput" {
			continue
		}
		if err := all[part](ctx, r, b); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}
