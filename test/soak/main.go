// Command soak runs the operator for a long time on a real control plane where
// objects, types, policies and modules come and go, while its connections are cut, its
// calls fail and the API server is killed. It fails if anything was lost or is stuck,
// or if the operator's memory, goroutines or files grow.
//
// What it has seen is left in a folder: samples.csv, chart.svg, and the operator's log.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := settings{progress: os.Stderr}
	flag.DurationVar(&s.length, "for", 30*time.Minute, "how long")
	flag.DurationVar(&s.every, "sample", 10*time.Second, "between samples")
	flag.StringVar(&s.collector, "collector", primary, "how Gleaner runs: primary or companion")
	flag.StringVar(&s.binary, "gleaner", "bin/gleaner", "the Gleaner to run")
	flag.StringVar(&s.folder, "out", "bin/soak", "folder for what was seen")
	flag.IntVar(&s.waves, "waves", 3, "sets of objects that are there at the same time")
	flag.IntVar(&s.size, "size", 3, "owners of each sort in one of them")
	flag.BoolVar(&s.attack, "attack", false, "have a tenant attack the operator all the time, with modules that loop, take memory or are slow to compile")
	flag.Parse()
	if s.collector != primary && s.collector != companion {
		fmt.Fprintf(os.Stderr, "soak: -collector=%s: use primary or companion\n", s.collector)
		os.Exit(2)
	}
	quiet()
	r, err := soak(ctx, s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	r.print(os.Stdout)
	if !r.passed() {
		os.Exit(1)
	}
}

// quiet keeps clients from complaining of each fault.
func quiet() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}
