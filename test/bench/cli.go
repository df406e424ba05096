package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// The namespace in which commands are measured: owners, and dependents of each.
const (
	commandOwners     = 50
	commandDependents = 99
)

// commands measures how long commands about a namespace take that read it from the API server. Gleaner does
// not run.
func (f atRestBench) commands(ctx context.Context, r *report, _ budget) error {
	namespace, err := f.namespace(ctx)
	if err != nil {
		return err
	}
	for range commandOwners {
		if _, err := f.family(ctx, namespace, commandDependents); err != nil {
			return err
		}
	}
	for _, arguments := range []string{"graph --namespace " + namespace, "preview delete namespace/" + namespace} {
		var seconds []float64
		for range f.rounds {
			took, err := f.command(ctx, arguments)
			if err != nil {
				return err
			}
			seconds = append(seconds, took.Seconds())
		}
		name, _, _ := strings.Cut(arguments, " ")
		r.note("seconds that gleaner %s of a namespace with %d objects takes: %.2f", name, commandOwners*(1+commandDependents), median(seconds))
	}
	return nil
}

// command runs a command of Gleaner, and returns how long it took. The error contains what it
// printed.
func (f atRestBench) command(ctx context.Context, arguments string) (time.Duration, error) {
	all := append(strings.Fields(arguments), "--kubeconfig", f.cluster.Kubeconfig())
	began := time.Now()
	printed, err := exec.CommandContext(ctx, f.binary, all...).CombinedOutput()
	if err == nil && strings.Count(string(printed), "\n") < commandOwners { // preview shows some of many, and counts all
		err = errors.New("it prints too few objects")
	}
	if err != nil {
		return 0, fmt.Errorf("gleaner %s: %w\n%.500s", arguments, err, printed)
	}
	return time.Since(began), nil
}
