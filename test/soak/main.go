// Command soak runs the operator for a long time on a real control plane on which
// objects, types, policies and modules are created and deleted, while its connections are cut, its
// calls fail and the API server is killed. It fails if an object is lost or stuck,
// or if the operator's memory, goroutines or files grow.
//
// It writes samples.csv, chart.svg, and the operator's log into a folder.
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
	flag.DurationVar(&s.length, "for", 30*time.Minute, "duration")
	flag.DurationVar(&s.every, "sample", 10*time.Second, "interval of samples")
	flag.StringVar(&s.collector, "collector", primary, "mode of Gleaner: primary or companion")
	flag.StringVar(&s.binary, "gleaner", "bin/gleaner", "gleaner binary to run")
	flag.StringVar(&s.folder, "out", "bin/soak", "folder for samples, chart and log")
	flag.IntVar(&s.waves, "waves", 3, "number of parallel sets of objects")
	flag.IntVar(&s.size, "size", 3, "number of owners of each kind in a set")
	flag.BoolVar(&s.attack, "attack", false, "attack the operator all the time as a tenant, with modules that loop, take memory or are slow to compile")
	flag.Parse()
	if s.collector != primary && s.collector != companion {
		fmt.Fprintf(os.Stderr, "soak: -collector=%s: use primary or companion\n", s.collector)
		os.Exit(2)
	}
	silenceClients()
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

// silenceClients keeps clients from logging each fault.
func silenceClients() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}
