package debug

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/escape"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// WriteDOT writes a dump in the DOT language of Graphviz, with the attributes of the
// built-in collector's dump (G-76). Edges go from the dependent to the owner. Owners are
// drawn on the left, since many dependents next to each other make the picture too wide.
func WriteDOT(w io.Writer, d graph.Dump) error {
	var b strings.Builder
	b.WriteString("strict digraph full {\n  rankdir=RL\n  node [shape=box]\n")
	for _, n := range d.Nodes {
		n = escapeNode(n)
		writeNode(&b, n, attributes(n))
	}
	for _, e := range d.Edges {
		fmt.Fprintf(&b, "  %s -> %s;\n", quote(escape.Text(string(e.Dependent))), quote(escape.Text(string(e.Owner))))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func writeNode(b *strings.Builder, n graph.DumpNode, attributes [][2]string) {
	fmt.Fprintf(b, "  %s [\n", quote(string(n.UID)))
	for _, a := range attributes {
		fmt.Fprintf(b, "    %s=%s\n", a[0], quote(a[1]))
	}
	b.WriteString("  ];\n")
}

// escapeNode returns the node with its names escaped, so that they can't add lines to labels
// or contain terminal control sequences.
func escapeNode(n graph.DumpNode) graph.DumpNode {
	n.APIVersion, n.Kind = escape.Text(n.APIVersion), escape.Text(n.Kind)
	n.Namespace, n.Name, n.UID = escape.Text(n.Namespace), escape.Text(n.Name), types.UID(escape.Text(string(n.UID)))
	return n
}

func attributes(n graph.DumpNode) [][2]string {
	gvk := schema.FromAPIVersionAndKind(n.APIVersion, n.Kind)
	return [][2]string{
		{"label", fmt.Sprintf("uid=%s\nnamespace=%s\n%s\n%s", n.UID, n.Namespace, gvk.GroupKind(), n.Name)},
		{"group", gvk.Group},
		{"version", gvk.Version},
		{"kind", gvk.Kind},
		{"namespace", n.Namespace},
		{"name", n.Name},
		{"uid", string(n.UID)},
		{"missing", fmt.Sprint(n.State == "gone")},
		{"beingDeleted", fmt.Sprint(n.Terminating)},
		{"deletingDependents", fmt.Sprint(n.Terminating && n.Foreground)},
		{"virtual", fmt.Sprint(n.State == "named")},
	}
}

// quote returns a quoted string in the DOT language, in which only the quote and the
// backslash are special, and \n is a line break in a label.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
