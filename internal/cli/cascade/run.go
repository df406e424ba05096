package cascade

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// streams are the streams of a command.
type streams struct {
	in          io.Reader
	out, errOut io.Writer
}

// runner is a command with its flags.
type runner interface {
	validate() error
	run(ctx context.Context, names []name, s streams) error
}

// runE returns the function that runs a command for the objects in its arguments.
func runE(r runner) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		names, err := parseNames(args)
		if err != nil {
			return err
		}
		if err := r.validate(); err != nil {
			return err
		}
		return r.run(cmd.Context(), names, streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()})
	}
}
