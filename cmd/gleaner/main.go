// Command gleaner is a Kubernetes garbage collector that people can program.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

// Exit codes.
const (
	exitFailure = kubectl.ExitFailure
	exitUsage   = kubectl.ExitUsage
)

// usageError is a command line that makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	name, completes := kubectl.Called(os.Args[0])
	cmd := rootCalled(name)
	if completes {
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	err := cmd.ExecuteContext(ctx)
	stop()
	os.Exit(tell(os.Stderr, name, err))
}

// tell writes what went wrong, if anything did, and returns the exit code for it.
func tell(out io.Writer, name string, err error) int {
	exit := kubectl.Exit{Code: exitFailure, Err: err}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usageError{}):
		exit.Code = exitUsage
	case errors.As(err, &exit):
	}
	if exit.Err != nil {
		kubectl.TellError(out, name, exit.Err)
	}
	return exit.Code
}

func root() *cobra.Command { return rootCalled("gleaner") }

// rootCalled is the command under the name by which it was called.
func rootCalled(name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "gleaner",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:         "A Kubernetes garbage collector that you can program",
		Long:          rootLong,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommand,
		// For all commands: none may have another.
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { kubectl.GuardOutput(cmd) },
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // or a command that there is not would be no error
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	group(cmd, "Ask a cluster, and have it let go:", explainCommand(), stuckCommand(), monitorCommand(), graphCommand(), previewCommand(), doctorCommand(), releaseCommand())
	group(cmd, "Write and test policies and finalizers:", moduleCommand(), testCommand(), replayCommand())
	group(cmd, "Run Gleaner:", demoCommand(), devCommand(), runCommand(), rbacCommand())
	cmd.AddCommand(versionCommand(), sandboxCommand())
	cmd.Version = version
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.InitDefaultHelpCmd()
	if help, _, err := cmd.Find([]string{"help"}); err == nil {
		help.Args = noTopic
	}
	return cmd
}

const rootLong = `Gleaner is a Kubernetes garbage collector that you can program: policies and finalizers, written as modules, decide what becomes
of objects that are deleted or lose their owners. To see it on this machine, without a cluster: gleaner demo.`

// group adds commands that the help shows together.
func group(to *cobra.Command, title string, commands ...*cobra.Command) {
	to.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	to.AddCommand(commands...)
}

// noCommand refuses the name of a command that there is not.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if cmd.SuggestionsMinimumDistance = 2; len(cmd.SuggestionsFor(args[0])) != 0 {
		meant = "did you mean " + strings.Join(cmd.SuggestionsFor(args[0]), " or ") + "? "
	}
	return usageError{fmt.Errorf("there is no command %q: %ssee %s --help", args[0], meant, cmd.CommandPath())}
}

// noTopic refuses to help with a command that there is not.
func noTopic(help *cobra.Command, args []string) error {
	if about, rest, err := help.Root().Find(args); err == nil {
		return noCommand(about, rest)
	}
	return nil // help says so
}

// noArguments refuses arguments that a command has no use for.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%s takes no argument %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())}
}
