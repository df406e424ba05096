// Package arguments provides cobra validators of positional arguments.
package arguments

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
)

// RejectUnknownCommand rejects unknown commands.
func RejectUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	expected := ""
	if cmd.SuggestionsMinimumDistance = 2; len(cmd.SuggestionsFor(args[0])) != 0 {
		expected = "did you mean " + strings.Join(cmd.SuggestionsFor(args[0]), " or ") + "? "
	}
	return exit.AsUsage(fmt.Errorf("unknown command %q: %ssee %s --help", args[0], expected, cmd.CommandPath()))
}

// None rejects arguments.
func None(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return exit.AsUsage(fmt.Errorf("%s does not take arguments, got %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath()))
}
