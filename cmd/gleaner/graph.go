package main

import (
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const graphLong = `Show who owns whom: the object with its owners and all that it owns, or everything in a namespace that owns
anything or is owned.

STATE is "terminating" for an object that is being deleted, and how: in the foreground it waits for its dependents, and
orphaning it leaves them behind. FINALIZERS are those that keep it then. BLOCKS says that it holds up the deletion of
its owner, if that is deleted in the foreground. Of an owner that is not there as the reference says, OWNER says what is
known: absent (no such object), present (elsewhere than was read) or unknown (it could not be read).`

// graphWriters write an ownership in the formats that are not for people.
var graphWriters = map[string]func(io.Writer, *ownership) error{
	"dot":     func(out io.Writer, o *ownership) error { return debug.WriteDOT(out, o.dump) },
	"json":    func(out io.Writer, o *ownership) error { return kubectl.Write(out, "json", o) },
	"yaml":    func(out io.Writer, o *ownership) error { return kubectl.Write(out, "yaml", o) },
	"mermaid": writeMermaid,
	"svg":     writeSVG,
}

func graphCommand() *cobra.Command {
	f := kubectl.NewFlags(append([]string{"wide"}, slices.Sorted(maps.Keys(graphWriters))...)...)
	var filter graphFilter
	cmd := &cobra.Command{
		Use:   "graph [KIND/NAME]",
		Short: "Show who owns whom",
		Long:  graphLong,
		Example: "  gleaner graph deployment/web -n shop\n" +
			"  gleaner graph -n shop\n" +
			"  gleaner graph -n shop --kind pod --depth 3\n" +
			"  gleaner graph -A -o svg > owners.svg\n" +
			"  kubectl get all,cm,secret -n shop -o yaml | gleaner graph -f - -o mermaid",
		ValidArgsFunction: f.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(f.Validate(), filter.validate()); err != nil {
				return err
			}
			if len(args) != 0 {
				if _, _, err := kubectl.Named(args); err != nil {
					return err
				}
			}
			a, err := ask(cmd.Context(), f, args, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			kinds, err := filter.groupKinds(a, f)
			if err != nil {
				return err
			}
			o := ownershipOf(cmd.Context(), a)
			filter.apply(o, kinds)
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

// dumpOf is the part of the graph that is asked about.
func dumpOf(a *asked) graph.Dump {
	if a.target.Object != nil {
		return a.survey.Graph.Dump(a.target.Object.GetUID())
	}
	d := a.survey.Graph.Dump()
	if a.namespace == "" || a.config != nil { // a cluster was only asked about the namespace
		return d
	}
	var in []types.UID
	for _, n := range d.Nodes {
		if n.Namespace == a.namespace {
			in = append(in, n.UID)
		}
	}
	if len(in) == 0 {
		return graph.Dump{}
	}
	return a.survey.Graph.Dump(in...)
}
