//go:build ignore

// Command build builds Gleaner, or another program of the root module, as "go build"
// does, and reports how far it is. It imports little, so that it is soon compiled
// itself. Run it from the root module.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/gleaner-dev/gleaner/devcluster/gobuild"
)

func main() {
	output := flag.String("o", "bin/gleaner", "the program")
	version := flag.String("version", "development", "what it says of itself")
	name := flag.String("name", "Gleaner", "the program, for people")
	system := flag.String("os", "", "the operating system that it is for; empty means this one")
	machine := flag.String("arch", "", "the architecture that it is for; empty means this one")
	flag.Parse()
	packages := flag.Args()
	if len(packages) == 0 {
		packages = []string{"./cmd/gleaner"}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := gobuild.Run(ctx, gobuild.Build{
		Label:    "build",
		Name:     *name,
		Packages: packages,
		Flags:    []string{"-buildvcs=false", "-ldflags", "-X main.version=" + *version},
		Output:   *output,
		Env:      []string{"GOOS=" + *system, "GOARCH=" + *machine},
	}, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		stop()
		os.Exit(1)
	}
}
