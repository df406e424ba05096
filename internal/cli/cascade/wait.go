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
	"github.com/gleaner-dev/gleaner/operator/survey"
)

const waitLong = `Follow a deletion in progress until nothing is left, as gleaner delete does.

If an object is already gone, its dependents are found by their owner references.`

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
		Short: "Follow a deletion in progress until nothing is left",
		Long: waitLong + `

Exit codes: 0 if nothing is left; 1 for an error, an object that is not being deleted, or an interrupted command; 2 for an invalid
command line; 4 if objects are left after --timeout.`,
		Example: `  gleaner wait deployment/web -n shop
  gleaner wait ns/shop --timeout 5m`,
		ValidArgsFunction: o.CompleteTarget,
		RunE:              runE(o),
	}
	o.AddTo(cmd)
	cmd.Flags().StringVar(&o.what, "for", "cascade", "`condition` to wait for: cascade, until nothing is left")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "maximum time to follow the deletion, such as 5m; 0 means until nothing is left")
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
			return fmt.Errorf("%s is not being deleted; to delete it, run gleaner delete %s", t.Target, t.name)
		}
	}
	if err := a.ReadCluster(ctx, scope(a, targets), s.errOut); err != nil {
		return err
	}
	if err := checkRead(a, targets); err != nil {
		return err
	}
	tracker := track(a, targets)
	if tracker.Status().Done() {
		printer.Fprintf(s.out, "%s: gone, and no object has it as its owner.\n", joinNames(targets))
		printer.WriteLines(s.out, printer.PaletteFor(s.out), "Not checked, because it can't be read:", survey.Lines(a.Survey.Unread))
		return nil
	}
	return newFollower(a, targets, o.timeout, s).follow(ctx, a.Survey.Client, newFeed(tracker), places(a.Survey, tracker))
}
