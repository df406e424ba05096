package pause

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/pausestore"
)

const (
	// confirmTimeout is how long the operator may take to say that a pause is in force.
	confirmTimeout  = 10 * time.Second
	confirmInterval = 100 * time.Millisecond
)

const pauseLong = `Stop what Gleaner deletes, orphans, and requests for finalizers: in the whole cluster, in a namespace, or of one policy or
finalizer. What would have been deleted stays, and is decided about again after gleaner resume.

Archiving and status continue, and objects keep their holds. In companion mode, the built-in garbage collector is also kept
from deleting what policies govern; everything else is out of Gleaner's reach.

The command creates a ClusterPause, or with -n a Pause, and waits until the operator says that it is in force. If there is one
already, its reason and end are replaced. To see what is paused: kubectl get clusterpauses,pauses -A`

type pauseOptions struct {
	scopeFlags
	duration time.Duration
	reason   string
}

// Command returns the command gleaner pause.
func Command() *cobra.Command {
	o := &pauseOptions{scopeFlags: scopeFlags{Flags: kubectl.NewFlags()}}
	cmd := &cobra.Command{
		Use:   "pause [-n NAMESPACE] [--policy NAME] [--for 1h] [--reason TEXT]",
		Short: "Stop Gleaner from deleting anything, until gleaner resume",
		Long: pauseLong + `

Exit codes: 0 if the pause is in force; 1 for an error, also if no operator says so within 10 s; 2 for an invalid command line.`,
		Example: `  gleaner pause --reason "finding out why objects lose their owners"
  gleaner pause -n shop --for 1h
  gleaner pause --policy keep-data
  gleaner pause --policy shop/keep-data --for 30m`,
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.addTo(cmd)
	cmd.Flags().DurationVar(&o.duration, "for", 0, "how long the pause lasts, such as 1h; by default until gleaner resume")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the people who will see it")
	return cmd
}

func (o *pauseOptions) run(ctx context.Context, out io.Writer) error {
	at, err := o.scope()
	switch {
	case err != nil:
		return err
	case o.duration < 0:
		return exit.Usagef("--for=%s: use a positive duration, such as 1h, or omit it", o.duration)
	case len(o.reason) > v1alpha1.MaxPauseReason:
		return exit.Usagef("--reason: %d bytes: use at most %d", len(o.reason), v1alpha1.MaxPauseReason)
	}
	spec := v1alpha1.PauseSpec{Reason: o.reason}
	if o.duration > 0 {
		until := metav1.NewTime(time.Now().Add(o.duration)).Rfc3339Copy()
		spec.Until = &until
	}
	c, err := o.connect(ctx)
	if err != nil {
		return err
	}
	return o.pause(ctx, c, at, spec, out)
}

// pause creates the pause of a scope, and waits until it is in force.
func (o *pauseOptions) pause(ctx context.Context, c client.Client, at scope, spec v1alpha1.PauseSpec, out io.Writer) error {
	p, err := apply(ctx, c, at, spec, out)
	if err != nil {
		return explain(err)
	}
	if err := confirm(ctx, c, p); err != nil {
		return err
	}
	until := ""
	if p.Spec.Until != nil {
		until = " until " + p.Spec.Until.UTC().Format(time.RFC3339)
	}
	printer.Fprintf(out, "Paused %s%s. To end it: gleaner resume%s\n", at, until, o.args())
	return nil
}

// apply creates the pause of a scope, or replaces its spec.
func apply(ctx context.Context, c client.Client, at scope, spec v1alpha1.PauseSpec, out io.Writer) (pausestore.Resource, error) {
	p := at.object(spec)
	err := c.Create(ctx, p.Object)
	switch {
	case err == nil:
		printer.Fprintf(out, "Created %s.\n", nameOf(p))
		return p, nil
	case !apierrors.IsAlreadyExists(err):
		return p, err
	}
	live := at.object(v1alpha1.PauseSpec{})
	if err := c.Get(ctx, client.ObjectKeyFromObject(p.Object), live.Object); err != nil {
		return p, err
	}
	spec.Policy = at.policy
	*live.Spec = spec
	if err := c.Update(ctx, live.Object); err != nil {
		return p, err
	}
	printer.Fprintf(out, "Updated %s.\n", nameOf(live))
	return live, nil
}

// errNotConfirmed means that a pause was created, and that it has no effect as far as is known.
var errNotConfirmed = errors.New("the pause was created, but no operator says that it is in force: deletions may continue. Check gleaner doctor")

// confirm waits until the operator says that a pause is in force.
func confirm(ctx context.Context, c client.Client, p pausestore.Resource) error {
	err := wait.PollUntilContextTimeout(ctx, confirmInterval, confirmTimeout, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(p.Object), p.Object); err != nil {
			return false, err
		}
		is := apimeta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionInForce)
		if is == nil || is.ObservedGeneration != p.GetGeneration() {
			return false, nil
		}
		if is.Status != metav1.ConditionTrue {
			return false, fmt.Errorf("%s is not in force: %s", nameOf(p), is.Message)
		}
		return true, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return errNotConfirmed
	}
	return err
}
