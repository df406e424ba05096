//go:build ignore

// Command setup builds, once per user and version, the control plane and the S3
// server that the tests run against, and the kubelet and containerd if a node can run here, and shows
// how that goes on: go test would keep the minutes it takes to itself. Run it from the
// root module.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/node"
	"github.com/gleaner-dev/gleaner/devcluster/s3server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	_, err := devcluster.Build(ctx, os.Stderr)
	if err == nil {
		_, err = s3server.Build(ctx, os.Stderr)
	}
	if err == nil && node.CheckRequirements() == nil { // or its tests are skipped
		err = node.Build(ctx, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		stop()
		os.Exit(1)
	}
}
