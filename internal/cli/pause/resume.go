package pause

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/pausestore"
)

const resumeLong = `End pauses: of the whole cluster, of a namespace, or of one policy or finalizer. What was stopped is decided about again, and
deleted if that is still the decision.

Every Pause or ClusterPause with exactly the given scope is deleted, also those that others have created. With --all, those with any scope are
deleted, of all namespaces or of that of -n. Pauses that a GitOps tool applies come back: delete them at their source.

With --budget, no pause is ended: deletions that wait for an exhausted DeletionBudget or ClusterDeletionBudget continue, and a new
window begins. The command sets the annotation gleaner.dev/resume, and waits until the operator has resumed.

Exit codes: 0 on success, also if nothing was paused; 1 for an error; 2 for an invalid command line.`

type resumeOptions struct {
	scopeFlags
	all    bool
	budget string
}

// ResumeCommand returns the command gleaner resume.
func ResumeCommand() *cobra.Command {
	o := &resumeOptions{scopeFlags: scopeFlags{Flags: kubectl.NewFlags()}}
	cmd := &cobra.Command{
		Use:   "resume [-n NAMESPACE] [--policy NAME] | --all | --budget NAME",
		Short: "End what gleaner pause or a deletion budget has stopped",
		Long:  resumeLong,
		Example: `  gleaner resume
  gleaner resume -n shop
  gleaner resume --policy keep-data
  gleaner resume --all
  gleaner resume --budget runaway
  gleaner resume --budget shop/nightly`,
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	o.addTo(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false, "end all pauses, in all namespaces or in that of -n")
	cmd.Flags().StringVar(&o.budget, "budget", "", "have deletions continue that wait for this budget: `[NAMESPACE/]NAME`; without NAMESPACE or -n, a ClusterDeletionBudget")
	o.CompleteFlag(cmd, "budget", v1alpha1.GroupVersion.WithResource("clusterdeletionbudgets"))
	return cmd
}

func (o *resumeOptions) run(ctx context.Context, out io.Writer) error {
	at, err := o.scope()
	switch {
	case err != nil:
		return err
	case o.all && at.policy != nil:
		return exit.Usagef("--all ends all pauses: omit --policy and --finalizer")
	case o.budget != "" && (o.all || at.policy != nil):
		return exit.Usagef("--budget resumes a budget, and ends no pause: omit --all, --policy and --finalizer, or run the command twice")
	}
	if o.budget != "" {
		return o.runBudget(ctx, out)
	}
	c, err := o.connect(ctx)
	if err != nil {
		return err
	}
	return o.resume(ctx, c, at, out)
}

// resume deletes the pauses of the scope, and says what is still paused.
func (o *resumeOptions) runBudget(ctx context.Context, out io.Writer) error {
	b, err := o.budgetResource()
	if err != nil {
		return err
	}
	c, err := o.connect(ctx)
	if err != nil {
		return err
	}
	return resumeBudget(ctx, c, b, out)
}

func (o *resumeOptions) resume(ctx context.Context, c client.Client, at scope, out io.Writer) error {
	all, err := o.read(ctx, c, at)
	if err != nil {
		return explain(err)
	}
	var (
		ended int
		left  []pausestore.Resource
	)
	for _, p := range all {
		if !o.all && !at.covers(p) {
			left = append(left, p)
			continue
		}
		if failed := c.Delete(ctx, p.Object, client.Preconditions{UID: new(p.GetUID())}); failed != nil && !apierrors.IsNotFound(failed) {
			err = errors.Join(err, failed)
			continue
		}
		ended++
		printer.Fprintf(out, "Deleted %s.\n", nameOf(p))
	}
	if ended == 0 && err == nil {
		printer.Fprintf(out, "There is no pause of %s.\n", at)
	}
	for _, line := range (&finalizers.Resources{Pauses: left}).Paused(at.namespace, time.Now()) {
		printer.Fprintf(out, "%s\n", line)
	}
	return err
}

// read reads the pauses of the scope: those of the cluster as well, unless they can't be read.
func (o *resumeOptions) read(ctx context.Context, c client.Client, at scope) ([]pausestore.Resource, error) {
	namespaced := []pausestore.Resource{}
	if at.namespace != "" {
		found, err := readNamespace(ctx, c, at.namespace)
		if err != nil || o.all {
			return found, err
		}
		namespaced = found
	}
	all, err := readAll(ctx, c)
	switch {
	case err == nil:
		return all, nil
	case at.namespace != "" && apierrors.IsForbidden(err):
		return namespaced, nil
	default:
		return nil, err
	}
}
