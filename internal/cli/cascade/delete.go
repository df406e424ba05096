// Package cascade implements gleaner delete and gleaner wait, which follow what a deletion leads to
// until nothing of it is left.
package cascade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/preview"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// exitNotConfirmed is the exit code if nothing was deleted, since it was not confirmed.
const exitNotConfirmed = 3

const defaultConfirmOver = 20

const deleteLong = `Delete objects, and follow what that leads to until nothing of it is left.

First a preview shows what would be deleted, kept or left waiting, as gleaner preview delete does. If that is more than
--confirm-over objects, or if some types can't be read, it asks for confirmation. Then it deletes the objects that you named, and
nothing else: their dependents are the garbage collector's. What is left is shown, with what it waits for: as a tree on a terminal,
otherwise in lines.

Without --cascade, the request has no propagation policy, unlike that of kubectl: policies decide about the dependents, or
else the default of the type. That is background, except for Jobs and ReplicationControllers, whose Pods are orphaned.

An object is done if it is gone, or if it is kept: it exists, and has no owner any more that was deleted. Gleaner's operator is not
needed for this command: it watches the objects themselves.`

type deleteOptions struct {
	*kubectl.Flags
	cascade     string
	wait        bool
	preview     bool
	confirmOver int
	yes         bool
	timeout     time.Duration
}

// DeleteCommand returns the command gleaner delete.
func DeleteCommand() *cobra.Command {
	o := &deleteOptions{Flags: kubectl.NewFlags()}
	cmd := &cobra.Command{
		Use:   "delete KIND/NAME...",
		Short: "Delete objects, and follow it until nothing is left",
		Long: deleteLong + `

Exit codes: 0 if nothing is left, or with --wait=false if the objects were deleted; 1 for an error, or if the command was interrupted
while something was left; 2 for an invalid command line; 3 if nothing was deleted, because it was not confirmed; 4 if something
is left after --timeout.`,
		Example: `  gleaner delete deployment/web -n shop
  gleaner delete ns/shop --confirm-over 0
  gleaner delete deploy web api --cascade foreground --timeout 2m
  gleaner delete configmap/settings --yes --wait=false`,
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
	flags := cmd.Flags()
	flags.StringVar(&o.cascade, "cascade", "", "`propagation` policy: background, foreground or orphan; by default none, so that policies and the type decide")
	flags.BoolVar(&o.wait, "wait", true, "follow the deletion until nothing is left")
	flags.BoolVar(&o.preview, "preview", true, "show first what would be deleted, kept or left waiting")
	flags.IntVar(&o.confirmOver, "confirm-over", defaultConfirmOver, "ask for confirmation if more than this `number` of objects would be deleted")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	flags.DurationVar(&o.timeout, "timeout", 0, "how long to follow the deletion, such as 5m; by default until nothing is left")
	_ = cmd.RegisterFlagCompletionFunc("cascade", cobra.FixedCompletions([]string{"background", "foreground", "orphan"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

var policies = map[string]metav1.DeletionPropagation{
	"": "", "background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
}

func (o *deleteOptions) validate() error {
	_, known := policies[o.cascade]
	switch {
	case !known:
		return exit.Usagef("--cascade=%s: use background, foreground or orphan, or omit it", o.cascade)
	case o.confirmOver < 0:
		return exit.Usagef("--confirm-over=%d: use 0 or more", o.confirmOver)
	case o.timeout < 0:
		return exit.Usagef("--timeout=%s: use a positive duration, such as 5m, or omit it", o.timeout)
	case o.timeout > 0 && !o.wait:
		return exit.Usagef("--timeout and --wait=false can't be used together: nothing is waited for")
	}
	return o.Validate()
}

// streams are the streams of a command.
type streams struct {
	in          io.Reader
	out, errOut io.Writer
}

func (o *deleteOptions) run(ctx context.Context, names []name, s streams) error {
	a, err := input.Connect(o.Flags)
	if err != nil {
		return err
	}
	targets, err := readTargets(ctx, o.Flags, names, false)
	if err != nil {
		return err
	}
	if err := a.ReadCluster(ctx, scope(a, targets), s.errOut); err != nil {
		return err
	}
	tracker := track(a, targets)
	client, watched, unread := a.Survey.Client, places(a.Survey, tracker), survey.Lines(a.Survey.Unread)
	affected := tracker.Status().Total()
	if o.preview {
		if affected, err = o.showPreview(ctx, a, targets, s); err != nil {
			return err
		}
	}
	if !o.confirmed(targets, affected, unread, s) {
		return exit.Error{Code: exitNotConfirmed, Err: errors.New("nothing was deleted: it was not confirmed; --yes confirms without a question")}
	}
	if err := o.delete(ctx, client, targets, s.out); err != nil || !o.wait {
		return err
	}
	return newFollower(a, targets, o.timeout, s).follow(ctx, client, newFeed(tracker), watched)
}

// showPreview shows the preview, and returns how many objects would or might be deleted. The survey can't be
// used afterwards.
func (o *deleteOptions) showPreview(ctx context.Context, a *input.Input, targets []target, s streams) (int, error) {
	ids := make([]graph.ID, len(targets))
	for i, t := range targets {
		ids[i] = graph.IDOf(t.Object.GetUID())
	}
	p, err := preview.Of(ctx, a, ids, policies[o.cascade], s.errOut)
	if err != nil {
		return 0, err
	}
	if err := p.Write(s.out); err != nil {
		return 0, err
	}
	printer.Fprintln(s.out)
	return p.Deletions(), nil
}

// confirmed reports whether the objects may be deleted.
func (o *deleteOptions) confirmed(targets []target, affected int, unread []string, s streams) bool {
	if o.yes || affected <= o.confirmOver && len(unread) == 0 {
		return true
	}
	question := fmt.Sprintf("Delete %s, which deletes up to %s?", joinNames(targets), printer.Count(affected, "object", "objects"))
	if len(unread) != 0 {
		question = fmt.Sprintf("Delete %s, which deletes %s or more, since not all types can be read?", joinNames(targets), printer.Count(affected, "object", "objects"))
	}
	return printer.Confirm(s.in, s.out, question)
}

// delete sends the requests. Each object must still be the one that was previewed.
func (o *deleteOptions) delete(ctx context.Context, client metadata.Interface, targets []target, out io.Writer) error {
	var errs []error
	for _, t := range targets {
		uid := t.Object.GetUID()
		options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
		if policy := policies[o.cascade]; policy != "" {
			options.PropagationPolicy = &policy
		}
		err := client.Resource(t.Resource).Namespace(t.Object.GetNamespace()).Delete(ctx, t.Object.GetName(), options)
		switch {
		case err == nil:
			printer.Fprintf(out, "%s: deletion requested\n", t.Target)
		case apierrors.IsNotFound(err):
			printer.Fprintf(out, "%s: already gone\n", t.Target)
		case apierrors.IsConflict(err):
			errs = append(errs, fmt.Errorf("%s: it was deleted and created again meanwhile, and is another object now: run the command again", t.Target))
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// arguments returns the targets as arguments.
func arguments(targets []target) []string {
	var args []string
	namespace := ""
	for _, t := range targets {
		args = append(args, t.name.String())
		if t.Object != nil && t.Namespaced {
			namespace = t.Object.GetNamespace()
		}
	}
	if namespace != "" {
		args = append(args, "-n", namespace)
	}
	return args
}
