// Package graph implements gleaner graph.
package graph

import (
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/picture"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

const long = `Show owners and dependents: an object with all its owners and dependents, or all objects in a namespace that have owners
or dependents.

STATE is "terminating" for an object that is being deleted, with the propagation policy: in the foreground it waits for its
dependents; orphaning removes their owner references. FINALIZERS are the finalizers that delay the deletion. BLOCKS means that the
object blocks the foreground deletion of its owner (blockOwnerDeletion). If an owner does not match the owner reference, OWNER
shows its status: absent (no such object), present (outside of what was read) or unknown (it could not be read).`

// graphWriters write an ownership in the machine-readable formats.
var graphWriters = map[string]func(io.Writer, *ownership.Ownership) error{
	"dot":     func(out io.Writer, o *ownership.Ownership) error { return debug.WriteDOT(out, o.Dump) },
	"json":    func(out io.Writer, o *ownership.Ownership) error { return printer.Write(out, "json", o) },
	"yaml":    func(out io.Writer, o *ownership.Ownership) error { return printer.Write(out, "yaml", o) },
	"mermaid": writeMermaid,
	"svg":     picture.Write,
}

// Command returns the command gleaner graph.
func Command() *cobra.Command {
	f := kubectl.NewFlags(append([]string{"wide"}, slices.Sorted(maps.Keys(graphWriters))...)...)
	var filter filter
	cmd := &cobra.Command{
		Use:   "graph [KIND/NAME]",
		Short: "Show owners and dependents",
		Long:  long,
		Example: "  gleaner graph deployment/web -n shop\n" +
			"  gleaner graph -n shop\n" +
			"  gleaner graph -n shop --kind pod --depth 3\n" +
			"  gleaner graph -A -o svg --fold > owners.svg\n" +
			"  kubectl get all,cm,secret -n shop -o yaml | gleaner graph -f - -o mermaid",
		ValidArgsFunction: f.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(f.Validate(), filter.validate(f.Output)); err != nil {
				return err
			}
			if len(args) != 0 {
				if _, _, err := kubectl.ParseTarget(args); err != nil {
					return err
				}
			}
			a, err := input.Read(cmd.Context(), f, args, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			kinds, err := filter.groupKinds(a, f)
			if err != nil {
				return err
			}
			var target types.UID
			dump := ownership.DumpOf(a.Survey, a.Namespace)
			if a.Target.Object != nil {
				target = a.Target.Object.GetUID()
				dump = a.Survey.Graph.Dump(target)
			}
			o := ownership.Of(cmd.Context(), a.Survey, dump, target)
			o.Limit(ownership.Limits{Depth: filter.depth, Kinds: kinds})
			if filter.fold {
				o.Fold()
			}
			if write, ok := graphWriters[f.Output]; ok {
				return write(cmd.OutOrStdout(), o)
			}
			return writeOwnership(cmd.OutOrStdout(), o, f.Output == "wide")
		},
	}
	f.AddTo(cmd)
	f.AddAllNamespaces(cmd)
	f.AddFiles(cmd)
	filter.addTo(cmd.Flags())
	return cmd
}
