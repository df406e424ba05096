package records

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/history"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const long = `List what Gleaner decided, and why: in a namespace, or with -A in all of them and about cluster-scoped objects.

The operator is queried, which has its newest records in memory and, with an archive, those from before its restarts, too; or
the store of the archive is read with --archive, which a file store allows only while no operator has it open. Through the
operator, records about objects that you may not get are left out.

Exit codes: 0 on success; 1 for an error, also if records are missing that could not be read; 2 for an invalid command line.`

// options are the flags of gleaner records.
type options struct {
	*kubectl.Flags
	archive entries.Flags

	uid, owner, policy, cascade, reason, since, until string
	would, follow                                     bool
	limit                                             int
}

// Command returns the command gleaner records.
func Command() *cobra.Command {
	o := &options{Flags: kubectl.NewFlags("json", "yaml", "wide", "name")}
	cmd := &cobra.Command{
		Use:   "records [KIND/NAME]",
		Short: "List what was decided about objects, and why",
		Long:  long,
		Example: `  gleaner records -n shop
  gleaner records configmap/settings -n shop     # also if it was deleted
  gleaner records -A --since 1h --reason OwnersAbsent
  gleaner records -A --would                     # what policies in Monitor mode would have done
  gleaner records --owner deployment/web -n shop --follow
  gleaner records --cascade 0f3c8d1e-… -o wide   # all that was decided because of one deletion
  gleaner records -A --archive s3://backups/gleaner`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := o.selection(args, time.Now())
			if err != nil {
				return err
			}
			if o.follow {
				return o.followRecords(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return o.list(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	o.addSelection(cmd)
	return cmd
}

// addSelection adds the flags that select records.
func (o *options) addSelection(cmd *cobra.Command) {
	flags := cmd.Flags()
	o.archive.AddTo(flags, false)
	flags.StringVar(&o.uid, "uid", "", "`UID` of the object")
	flags.StringVar(&o.owner, "owner", "", "`owner` of the objects, also a former one: its UID, or KIND/NAME")
	flags.StringVar(&o.policy, "policy", "", "`policy` or finalizer that was evaluated, such as \"ClusterGCPolicy keep\" or just \"keep\"")
	flags.StringVar(&o.cascade, "cascade", "", "select what was decided because the former object with this `UID` was deleted")
	flags.StringVar(&o.reason, "reason", "", "`reason` of the decisions, such as OwnersAbsent")
	flags.StringVar(&o.since, "since", "", "start of the period: a `duration` such as 10m, or a time such as 2026-01-02T03:04:05Z. By default all records")
	flags.StringVar(&o.until, "until", "", "end of the period, exclusive: a `duration` such as 10m, or a time such as 2026-01-02T03:04:05Z. By default now")
	flags.BoolVar(&o.would, "would", false, "select decisions for which a policy in Monitor mode would have decided something else")
	flags.BoolVar(&o.follow, "follow", false, "list new records as they are made, until interrupted")
	flags.IntVar(&o.limit, "limit", 500, "maximum `number` of records, the newest ones; 0 is 100000")
	_ = cmd.RegisterFlagCompletionFunc("owner", o.CompleteTarget)
}

// selection returns what the flags and arguments select.
func (o *options) selection(args []string, now time.Time) (s replicas.Selection, err error) {
	if err := errors.Join(o.Validate(), o.archive.Validate()); err != nil {
		return s, err
	}
	if o.limit < 0 {
		return s, exit.Usagef("--limit=%d: use 0 or more", o.limit)
	}
	if o.follow && o.until != "" {
		return s, exit.Usagef("--follow and --until=%s: use one of them", o.until)
	}
	s.Limit, s.Query = o.limit, record.Query{Policy: o.policy, Root: types.UID(o.cascade), Reason: o.reason, Would: o.would}
	for flag, to := range map[string]struct {
		text string
		at   *time.Time
	}{"--since": {o.since, &s.Since}, "--until": {o.until, &s.Before}} {
		if to.text == "" {
			continue
		}
		if *to.at, err = entries.ParseSince(to.text, now); err != nil {
			return s, exit.Usagef("%s: %w", flag, err)
		}
	}
	if s.Object, err = o.objectQuery(args); err != nil {
		return s, err
	}
	s.Object.UID = types.UID(o.uid)
	if strings.Contains(o.owner, "/") {
		s.Owner, err = o.namedQuery([]string{o.owner})
	} else {
		s.Owner.UID = types.UID(o.owner)
	}
	return s, err
}

// objectQuery selects the object that the arguments name, or all in the namespace.
func (o *options) objectQuery(args []string) (record.ObjectQuery, error) {
	if len(args) != 0 {
		return o.namedQuery(args)
	}
	if o.AllNamespaces || o.uid != "" || o.cascade != "" || o.owner != "" && !strings.Contains(o.owner, "/") {
		return record.ObjectQuery{}, nil
	}
	namespace, err := o.ResolveNamespace()
	return record.ObjectQuery{Namespace: &namespace}, err
}

// namedQuery selects an object by KIND/NAME. Its type need not be served any more: without a server,
// a kind is taken as it is written.
func (o *options) namedQuery(args []string) (record.ObjectQuery, error) {
	word, name, err := kubectl.ParseTarget(args)
	if err != nil {
		return record.ObjectQuery{}, err
	}
	q := record.ObjectQuery{Name: name}
	var group string
	if q.Kind, group, _ = strings.Cut(word, "."); group != "" {
		q.Group = &group
	}
	namespaced := *o.Namespace != ""
	if m, err := o.Mapping(word); err == nil {
		q.Group, q.Kind = &m.GroupVersionKind.Group, m.GroupVersionKind.Kind
		if namespaced = m.Scope.Name() == meta.RESTScopeNameNamespace; !namespaced {
			q.Namespace = new(string)
		}
	}
	if o.AllNamespaces || !namespaced {
		return q, nil
	}
	namespace, err := o.ResolveNamespace()
	q.Namespace = &namespace
	return q, err
}

// read reads the selected records.
func (o *options) read(ctx context.Context, s replicas.Selection) (replicas.Records, error) {
	return history.Read(ctx, &o.archive, func() (*rest.Config, error) { return o.Config() }, s)
}

func (o *options) list(ctx context.Context, s replicas.Selection, out, errOut io.Writer) error {
	var d printer.Step
	over := d.Show(errOut)
	defer over()
	d.Set("Reading records")
	found, err := o.read(ctx, s)
	over()
	if err != nil {
		return err
	}
	if len(found.Queried)+len(found.Unreachable) == 0 {
		return errNoOperator
	}
	return errors.Join(listOf(found).write(out, o.Output), missing(found.Unreachable))
}
