// Package restore implements gleaner restore and gleaner undo.
//
// What is selected, how it is planned and what objects become is decided by operator/restore; this
// package reads the archive and the cluster, and writes one object after the other.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
)

// exitConflicts is the exit code if nothing was written because of conflicts.
const exitConflicts = 3

// Values of --dry-run.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

type options struct {
	*kubectl.Flags
	archive     entries.Flags
	uid         string
	cascade     string
	since       string
	toNamespace string
	dryRun      string

	dropOwners    bool
	restoreStatus bool
	keepAddresses bool
	all           bool
	yes           bool

	byGleaner bool // gleaner undo
}

const long = `Create deleted objects again from the archive: an object with everything below it, a cascade, or what was deleted in a period.

Owners are created first, and owner references are rewritten to the new UIDs. Fields that the API server sets are removed. What is
restored is listed first, and written after confirmation. If an object can't be restored, for example since another object has
its name now, all such conflicts are listed and nothing is written.

Objects that a restored controller creates itself, such as the ReplicaSets and Pods of a Deployment, are left to it, unless --all is
given. Pods that had finished are not restored without --all, and Jobs that had finished are restored suspended. Finalizers
that no controller is known to serve are left off and listed. Services get new cluster IPs and node ports, unless
--keep-addresses is given. A PersistentVolumeClaim whose volume still has its data is bound to it again; otherwise it is
reported, and gets a new volume.

An object with owners that neither exist nor are restored would be collected again. It is a conflict; with --drop-owners it is
restored without references to them.

With --restore-status, custom resources get their status back. The status of other types is what Kubernetes observes.

A restore can be interrupted and repeated: restored objects have the annotation gleaner.dev/restored-from, and are recognized by
it. Entries of objects that you may not get are not read through the operator, and are missing from what is restored.`

const exitCodes = `

Exit codes: 0 on success, also if there was nothing to restore or the answer was no; 1 for an error, if an object could not be
restored, or if the command was interrupted; 2 for an invalid command line; 3 if there are conflicts and nothing was written.`

// Command returns the command gleaner restore.
func Command() *cobra.Command {
	o := &options{Flags: kubectl.NewFlags("json", "yaml")}
	cmd := &cobra.Command{
		Use:   "restore KIND/NAME | --uid UID | --cascade UID | --since TIME",
		Short: "Restore deleted objects from the archive",
		Long:  long + exitCodes,
		Example: `  gleaner restore deployment/web -n shop
  gleaner restore deployment/web -n shop --dry-run=server
  gleaner restore namespace/shop --identity key.txt        # with Secrets, which are encrypted
  gleaner restore --uid 0f3c8d1e-…                         # one of several former objects with the same name
  gleaner restore --cascade 0f3c8d1e-…                     # everything that was deleted because of one object
  gleaner restore --since 10m -n shop                      # no matter who deleted it
  gleaner restore deploy/web -n shop --to-namespace copy
  gleaner restore deploy/web -n shop --archive file:///var/lib/gleaner/archive`,
		ValidArgsFunction: o.CompleteTarget,
		RunE:              o.command,
	}
	o.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.uid, "uid", "", "`UID` of the former object, to restore it and everything below it")
	flags.StringVar(&o.cascade, "cascade", "", "`UID` of the former object whose deletion began a cascade, to restore all of that")
	flags.StringVar(&o.since, "since", "", "restore what was archived since this `time`: a duration such as 10m, or a time such as 2026-01-02T03:04:05Z; in the namespace, or with -A in all and cluster-scoped objects")
	return cmd
}

// UndoCommand returns the command gleaner undo.
func UndoCommand() *cobra.Command {
	o := &options{Flags: kubectl.NewFlags("json", "yaml"), byGleaner: true}
	cmd := &cobra.Command{
		Use:   "undo --since TIME",
		Short: "Restore what Gleaner has deleted in a period",
		Long: `Restore everything that Gleaner itself has deleted in a period, from the archive: in all namespaces, or in that of -n. Objects that
were deleted by users or other controllers are not restored, and neither are dependents that were collected because of that:
they are listed, and restored with their owners by gleaner restore.

It works as gleaner restore does: see gleaner restore --help for conflicts, and for what is left to controllers.` + exitCodes,
		Example: `  gleaner undo --since 10m --dry-run=client      # list what would be restored
  gleaner undo --since 10m
  gleaner undo --since 2026-01-02T03:04:05Z -n shop`,
		Args: arguments.None,
		RunE: o.command,
	}
	o.addTo(cmd)
	cmd.Flags().StringVar(&o.since, "since", "", "restore what Gleaner has deleted since this `time`: a duration such as 10m, or a time such as 2026-01-02T03:04:05Z")
	return cmd
}

func (o *options) addTo(cmd *cobra.Command) {
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	flags := cmd.Flags()
	o.archive.AddTo(flags, true)
	flags.StringVar(&o.toNamespace, "to-namespace", "", "`namespace` to restore namespaced objects to; by default their own")
	o.addDryRun(cmd, flags)
	flags.BoolVar(&o.dropOwners, "drop-owners", false, "restore objects without references to owners that neither exist nor are restored")
	flags.BoolVar(&o.restoreStatus, "restore-status", false, "restore the status of custom resources")
	flags.BoolVar(&o.keepAddresses, "keep-addresses", false, "restore Services with their cluster IPs and node ports, which must be free")
	flags.BoolVar(&o.all, "all", false, "also restore objects that restored controllers create themselves, and Pods that had finished")
	flags.BoolVar(&o.yes, "yes", false, "don't ask for confirmation")
	o.CompleteFlag(cmd, "to-namespace", schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
}

func (o *options) addDryRun(cmd *cobra.Command, flags *pflag.FlagSet) {
	flags.StringVar(&o.dryRun, "dry-run", dryRunNone, "none, client or server: with client, print what would be restored; with server, also have the API server check each object without storing it")
	flags.Lookup("dry-run").NoOptDefVal = dryRunServer
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]string{dryRunNone, dryRunClient, dryRunServer}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *options) command(cmd *cobra.Command, args []string) error {
	if err := o.validate(args); err != nil {
		return err
	}
	r := &run{options: o, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
	s, err := o.selection(args, time.Now())
	if err != nil {
		return err
	}
	return r.restore(cmd.Context(), s)
}

func (o *options) validate(args []string) error {
	if err := errors.Join(o.Validate(), o.archive.Validate()); err != nil {
		return err
	}
	given := 0
	for _, is := range []bool{len(args) != 0, o.uid != "", o.cascade != "", o.since != ""} {
		if is {
			given++
		}
	}
	switch {
	case o.byGleaner && o.since == "":
		return exit.Usagef("--since is required: write a duration such as 10m, or a time such as 2026-01-02T03:04:05Z")
	case given != 1:
		return exit.Usagef("specify exactly one of KIND/NAME, --uid, --cascade and --since")
	case o.dryRun != dryRunNone && o.dryRun != dryRunClient && o.dryRun != dryRunServer:
		return exit.Usagef("--dry-run=%s: use none, client or server", o.dryRun)
	case (o.uid != "" || o.cascade != "") && (o.AllNamespaces || *o.Namespace != ""):
		return exit.Usagef("--uid and --cascade select objects in any namespace: omit -n and -A")
	}
	if len(args) != 0 {
		_, _, err := kubectl.ParseTarget(args)
		return err
	}
	return nil
}

// selection returns what the flags and arguments select.
func (o *options) selection(args []string, now time.Time) (s selection, err error) {
	s = selection{uid: types.UID(o.uid), cascade: types.UID(o.cascade), byGleaner: o.byGleaner}
	if o.since != "" {
		if s.since, err = entries.ParseSince(o.since, now); err != nil {
			return s, exit.Usagef("--since: %w", err)
		}
	}
	if !o.AllNamespaces && s.uid == "" && s.cascade == "" && (!o.byGleaner || *o.Namespace != "") {
		namespace, err := o.ResolveNamespace()
		if err != nil {
			return s, err
		}
		s.namespace = &namespace
	}
	if len(args) == 0 {
		return s, nil
	}
	var word string
	if word, s.name, err = kubectl.ParseTarget(args); err != nil {
		return s, err
	}
	s.isKind, s.isLocal = entries.KindMatcher(word, o.Mapping)
	return s, nil
}

// run is one run of a command.
type run struct {
	*options
	in          io.Reader
	out, errOut io.Writer
}

var errNothing = errors.New("nothing is archived of that")

// notFound returns the error for a selection of which nothing is archived.
func (s selection) notFound() error {
	switch {
	case s.name != "" && s.namespace != nil && s.isLocal:
		return fmt.Errorf("%w: no object with the name %q in namespace %s; set another with -n, or search all with -A", errNothing, s.name, *s.namespace)
	case s.name != "":
		return fmt.Errorf("%w: no object with the name %q", errNothing, s.name)
	default:
		return fmt.Errorf("%w: no object with the UID %s%s, and nothing below it", errNothing, s.uid, s.cascade)
	}
}

func (r *run) restore(ctx context.Context, s selection) error {
	config, err := r.Config()
	if err != nil {
		return err
	}
	return r.restoreTo(ctx, config, s)
}
