// Package sandbox implements the hidden command of sandbox workers.
package sandbox

import (
	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
)

// Command compiles and evaluates modules in a process that "gleaner run" starts.
func Command() *cobra.Command {
	return &cobra.Command{
		Use:                serve.Command,
		Short:              "Compile and evaluate modules; started by the operator",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := serve.Main(args); code != 0 {
				return exit.Error{Code: code}
			}
			return nil
		},
	}
}
