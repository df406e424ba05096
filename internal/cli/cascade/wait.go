package cascade

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

const waitLong = `Follow a deletion that is in progress, until nothing of it is left: as gleaner delete does after it has deleted an object.

An object that is gone is found by the objects that still refer to it as their owner. If there are none, nothing is left.`

type waitOptions struct {
	*kubectl.Flags
	what    string
	timeout time.Duration
}

// WaitCommand returns the command gleaner wait.
func WaitCommand() *cobra.Command {
	o := &waitOptions{Flags: kubectl.NewFlags()}
	cmd := &cobra.Command{
		Use:   "wait KIND/NAME...",
		Short: "Follow a deletion that is in progress",
		Long: waitLong + `

Exit codes: 0 if nothing is left; 1 for an error, also if an object is not being deleted, or if the command was interrupted while something
was left; 2 for an invalid command line; 4 if something is left after --timeout.`,
		Example: `  gleaner wait deployment/web -n shop
  gleaner wait ns/shop --timeout 5m`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := parseNames(args)
			if err != nil {
				return err
			}
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), names, streams{cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()})
		},
	}
	o.AddTo(cmd)
	cmd.Flags().StringVar(&o.what, "for", "cascade", "what to wait for: cascade")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "how long to follow the deletion, such as 5m; by default until nothing is left")
	_ = cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions([]string{"cascade"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *waitOptions) validate() error {
	switch {
	case o.what != "cascade":
		return exit.Usagef("--for=%s: use cascade; for conditions, use kubectl wait", o.what)
	case o.timeout < 0:
		return exit.Usagef("--timeout=%s: use a positive duration, such as 5m, or omit it", o.timeout)
	}
	return o.Validate()
}

func (o *waitOptions) run(ctx context.Context, names []name, s streams) error {
	a, err := input.Connect(o.Flags)
	if err != nil {
		return err
	}
	targets, err := readTargets(ctx, o.Flags, names, true)
	if err != nil {
		return err
	}
	for _, t := range targets {
		if !t.gone() && t.Object.GetDeletionTimestamp() == nil {
			return fmt.Errorf("%s is not being deleted: to delete it, run gleaner delete %s", t.Target, t.name)
		}
	}
	if err := a.ReadCluster(ctx, scope(a, targets), s.errOut); err != nil {
		return err
	}
	tracker := track(a, targets)
	if tracker.Status().Done() {
		printer.Fprintf(s.out, "%s: gone, and nothing that can be read refers to it.\n", joinNames(targets))
		return nil
	}
	return newFollower(a, targets, o.timeout, s).follow(ctx, a.Survey.Client, newFeed(tracker), places(a.Survey, tracker))
}
