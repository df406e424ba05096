//go:build ignore

// Command setup builds, once per user and version, the control plane that the
// tests run against, and shows how that goes on: go test would keep the
// minutes it takes to itself. Run it from the root module.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/gleaner-dev/gleaner/devcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := devcluster.Build(ctx, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		stop()
		os.Exit(1)
	}
}
