// Command gleaner is a Kubernetes garbage collector that people can program.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitFailure = 1 // something went wrong while running
	exitUsage   = 2 // the command line makes no sense
)

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	switch {
	case err == nil:
		return
	case errors.As(err, &usageError{}):
		fmt.Fprintf(os.Stderr, "gleaner: %v\n", err)
		os.Exit(exitUsage)
	default:
		fmt.Fprintf(os.Stderr, "gleaner: %v\n", err)
		os.Exit(exitFailure)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "gleaner",
		Short:         "A Kubernetes garbage collector that you can program",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArguments,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // or a command that there is not would be no error
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	cmd.AddCommand(runCommand(), devCommand(), demoCommand(), moduleCommand(), releaseCommand(), replayCommand(), testCommand(), versionCommand())
	return cmd
}

// noArguments refuses arguments that a command has no use for.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%s takes no argument %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())}
}

// version is set by the linker.
var version = "development"

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), version) },
	}
}
