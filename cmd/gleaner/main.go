// Command gleaner runs a programmable Kubernetes garbage collector, and inspects and
// tests what it does.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/archive"
	"github.com/gleaner-dev/gleaner/internal/cli/buildinfo"
	"github.com/gleaner-dev/gleaner/internal/cli/cascade"
	"github.com/gleaner-dev/gleaner/internal/cli/doctor"
	"github.com/gleaner-dev/gleaner/internal/cli/explain"
	"github.com/gleaner-dev/gleaner/internal/cli/graph"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/module"
	"github.com/gleaner-dev/gleaner/internal/cli/monitor"
	"github.com/gleaner-dev/gleaner/internal/cli/node"
	"github.com/gleaner-dev/gleaner/internal/cli/pause"
	"github.com/gleaner-dev/gleaner/internal/cli/preview"
	"github.com/gleaner-dev/gleaner/internal/cli/program"
	"github.com/gleaner-dev/gleaner/internal/cli/rbac"
	"github.com/gleaner-dev/gleaner/internal/cli/records"
	"github.com/gleaner-dev/gleaner/internal/cli/release"
	"github.com/gleaner-dev/gleaner/internal/cli/replay"
	"github.com/gleaner-dev/gleaner/internal/cli/restore"
	"github.com/gleaner-dev/gleaner/internal/cli/run"
	"github.com/gleaner-dev/gleaner/internal/cli/sandbox"
	"github.com/gleaner-dev/gleaner/internal/cli/stuck"
	"github.com/gleaner-dev/gleaner/internal/cli/test"
	"github.com/gleaner-dev/gleaner/internal/cli/ui"
)

// version is set by the linker.
var version = "development"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	name, completes := kubectl.ProgramName(os.Args[0])
	cmd := rootCommandFor(name)
	if completes {
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	err := cmd.ExecuteContext(ctx)
	stop()
	os.Exit(program.PrintError(os.Stderr, name, err))
}

func rootCommand() *cobra.Command { return rootCommandFor("gleaner") }

// rootCommandFor returns the root command for the name under which the program was called.
func rootCommandFor(name string) *cobra.Command {
	cmd := &cobra.Command{Use: "gleaner", Short: "A programmable Kubernetes garbage collector", Long: rootLong}
	program.Group(cmd, "Inspect and release:",
		explain.Command(), records.Command(), stuck.Command(), monitor.Command(), graph.Command(), ui.Command(), preview.Command(), doctor.Command(version), release.Command())
	program.Group(cmd, "Delete:", cascade.DeleteCommand(), cascade.WaitCommand())
	program.Group(cmd, "Stop and resume:", pause.Command(), pause.ResumeCommand())
	program.Group(cmd, "Undo deletions:", restore.Command(), restore.UndoCommand(), archive.Command())
	program.Group(cmd, "Write and test policies and finalizers:", module.Command(), test.Command(), replay.Command())
	program.Group(cmd, "Run Gleaner:", run.Command(version), node.Command(version), rbac.Command())
	cmd.AddCommand(buildinfo.Command(version), sandbox.Command(),
		program.Moved("demo", "gleaner-dev demo, or make demo in a checkout"), program.Moved("dev", "gleaner-dev dev in a checkout, after make build"))
	program.SetUp(cmd, name, version)
	return cmd
}

const rootLong = `Gleaner is a programmable Kubernetes garbage collector: policies and finalizers, written as modules, decide what happens to
objects that are deleted or lose their owners.`
