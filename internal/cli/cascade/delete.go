// Package cascade implements gleaner delete and gleaner wait, which follow a deletion until nothing is left.
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
	"github.com/gleaner-dev/gleaner/operator/cascade"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// exitNotConfirmed is the exit code if nothing was deleted because it was not confirmed.
const exitNotConfirmed = 3

const defaultConfirmOver = 20

const deleteLong = `Delete objects and follow the deletion until nothing is left.

A preview shows first what would be deleted, kept or left waiting, as gleaner preview delete does. If more than --confirm-over
objects would be deleted, or if some types can't be read, you are asked for confirmation. Then the named objects are deleted. Their
dependents are left to the garbage collector. What remains is shown with what it waits for: on a terminal as a tree, otherwise as
lines.

Without --cascade, the request has no propagation policy, unlike a request of kubectl. If no policy of Gleaner decides about the
dependents, the object's finalizer orphan or foregroundDeletion applies, or else the default of its type: Background, but Orphan for
Jobs and ReplicationControllers.

An object is kept if it exists, is not being deleted, and no longer has an owner that was deleted. This command watches the objects
themselves and does not need Gleaner's operator.`

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
		Short: "Delete objects and follow the deletion until nothing is left",
		Long: deleteLong + `

Exit codes: 0 if nothing is left, or with --wait=false if the deletion was requested; 1 for an error or an interrupted command; 2 for
an invalid command line; 3 if nothing was deleted because it was not confirmed; 4 if objects are left after --timeout.`,
		Example: `  gleaner delete deployment/web -n shop
  gleaner delete ns/shop --confirm-over 0
  gleaner delete deploy web api --cascade foreground --timeout 2m
  gleaner delete configmap/settings --yes --wait=false`,
		ValidArgsFunction: o.CompleteTarget,
		RunE:              runE(o),
	}
	o.AddTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.cascade, "cascade", "", "`propagation` policy: background, foreground or orphan; none by default")
	flags.BoolVar(&o.wait, "wait", true, "follow the deletion until nothing is left")
	flags.BoolVar(&o.preview, "preview", true, "show what would be deleted, kept or left waiting before deleting")
	flags.IntVar(&o.confirmOver, "confirm-over", defaultConfirmOver, "ask for confirmation if more than this `number` of objects would be deleted")
	flags.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	flags.DurationVar(&o.timeout, "timeout", 0, "maximum time to follow the deletion, such as 5m; 0 means until nothing is left")
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
	if err := checkRead(a, targets); err != nil && o.wait {
		return fmt.Errorf("%w, or use --wait=false", err)
	}
	all := objects(a.Survey)
	tracker := cascade.New(roots(a, targets), all)
	client, watched, unread := a.Survey.Client, places(a.Survey, tracker), survey.Lines(a.Survey.Unread)
	affected := tracker.Status().Total()
	if o.preview {
		if affected, err = o.showPreview(ctx, a, targets, s); err != nil {
			return err
		}
	}
	if !o.confirmed(targets, affected, unread, s) {
		return exit.Error{Code: exitNotConfirmed, Err: errors.New("nothing was deleted: it was not confirmed; to delete without a prompt, use --yes")}
	}
	requested, failed := o.delete(ctx, client, targets, s.out)
	if !o.wait || len(requested) == 0 {
		return failed
	}
	if failed != nil { // what was not deleted is not followed
		printer.Fprintln(s.errOut, "Not all deletions were accepted. Following the others.")
		tracker = cascade.New(roots(a, requested), all)
	}
	return errors.Join(newFollower(a, requested, o.timeout, s).follow(ctx, client, newFeed(tracker), watched), failed)
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
	number := fmt.Sprintf("Up to %s will be deleted.", printer.Count(affected, "object", "objects"))
	if len(unread) != 0 {
		number = fmt.Sprintf("Not all types can be read, so %s or more will be deleted.", printer.Count(affected, "object", "objects"))
	}
	return printer.Prompt{In: s.in, Out: s.out}.Confirmed(fmt.Sprintf("Delete %s? %s", joinNames(targets), number))
}

// delete sends the requests, and returns the objects that are being deleted or gone. Each object must still be the
// one that was previewed.
func (o *deleteOptions) delete(ctx context.Context, client metadata.Interface, targets []target, out io.Writer) (requested []target, err error) {
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
			requested = append(requested, t)
		case apierrors.IsNotFound(err):
			printer.Fprintf(out, "%s: already gone\n", t.Target)
			requested = append(requested, t)
		case apierrors.IsConflict(err):
			errs = append(errs, fmt.Errorf("%s was deleted and created again after it was read: run the command again", t.Target))
		default:
			errs = append(errs, err)
		}
	}
	return requested, errors.Join(errs...)
}
