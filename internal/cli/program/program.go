// Package program sets up the root commands of programs: guarded output, errors, exit codes
// and help.
package program

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// SetUp sets up a root command for the name under which the program was called. Its commands
// must have been added.
func SetUp(cmd *cobra.Command, name, version string) {
	cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Args = arguments.RejectUnknownCommand
	// Runs for all commands: no command may define its own.
	cmd.PersistentPreRun = func(cmd *cobra.Command, _ []string) { printer.GuardOutput(cmd) }
	// Without RunE, an unknown command would not be an error.
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return exit.AsUsage(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	cmd.Version = version
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.InitDefaultHelpCmd()
	if help, _, err := cmd.Find([]string{"help"}); err == nil {
		help.Args = rejectUnknownTopic
	}
}

// Group adds commands under one heading of the help text.
func Group(to *cobra.Command, title string, commands ...*cobra.Command) {
	to.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	to.AddCommand(commands...)
}

// Moved returns a hidden command that only says which commands to use instead.
func Moved(name, use string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return exit.Usagef("%s has moved to another program: use %s", cmd.CommandPath(), use)
		},
	}
}

// rejectUnknownTopic rejects help for unknown commands.
func rejectUnknownTopic(help *cobra.Command, args []string) error {
	if about, rest, err := help.Root().Find(args); err == nil {
		return arguments.RejectUnknownCommand(about, rest)
	}
	return nil // help reports it
}

// PrintError prints the error, if any, and returns its exit code.
func PrintError(out io.Writer, name string, err error) int {
	if err == nil {
		return 0
	}
	status := exit.Error{Code: exit.CodeFailure, Err: err}
	errors.As(err, &status)
	if status.Err != nil {
		kubectl.PrintError(out, name, status.Err)
	}
	return status.Code
}
