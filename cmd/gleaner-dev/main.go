// Command gleaner-dev runs Gleaner on a control plane on this machine, which it builds from
// source. It must be run in a checkout.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/buildinfo"
	"github.com/gleaner-dev/gleaner/internal/cli/demo"
	"github.com/gleaner-dev/gleaner/internal/cli/dev"
	"github.com/gleaner-dev/gleaner/internal/cli/program"
	"github.com/gleaner-dev/gleaner/internal/cli/sandbox"
)

const name = "gleaner-dev"

// version is set by the linker.
var version = "development"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	err := rootCommand().ExecuteContext(ctx)
	stop()
	os.Exit(program.PrintError(os.Stderr, name, err))
}

func rootCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: "Gleaner on a local control plane",
		Long: "Run Gleaner on a control plane on this machine, without a cluster. It must be run in a checkout of Gleaner, and builds the\n" +
			"control plane from source the first time.",
	}
	cmd.AddCommand(demo.Command(version), dev.Command(version), buildinfo.Command(version), sandbox.Command())
	program.SetUp(cmd, name, version)
	return cmd
}
