package debug

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/escape"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// compatiblePaths are where kube-controller-manager serves the graph of its collector,
// by the names that newer and older versions have for that controller.
var compatiblePaths = []string{
	"/debug/controllers/garbage-collector-controller/graph",
	"/debug/controllers/garbagecollector/graph",
}

// compatibleGraph serves the graph to tools that are made for kube-controller-manager's:
// always DOT, and nothing of a UID that is unknown, that the client may not see, or that has
// neither owners nor dependents.
func (s Source) compatibleGraph(w http.ResponseWriter, r *http.Request) {
	dump := visible(related(s.Dump(uidsOf(r)...)), s.Sight(r))
	w.Header().Set("Content-Type", "text/vnd.graphviz")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = writeCompatibleDOT(w, dump) // the client has gone: nobody is left to tell
}

// related leaves out what has neither owners nor dependents, as kube-controller-manager
// does even if that is asked for.
func related(d graph.Dump) graph.Dump {
	is := map[types.UID]bool{}
	for _, e := range d.Edges {
		is[e.Dependent], is[e.Owner] = true, true
	}
	d.Nodes = slices.DeleteFunc(d.Nodes, func(n graph.DumpNode) bool { return !is[n.UID] })
	return d
}

// uidsOf are the UIDs that a request is about; none: all of them.
func uidsOf(r *http.Request) []types.UID {
	var uids []types.UID
	for _, uid := range r.URL.Query()["uid"] {
		uids = append(uids, types.UID(uid))
	}
	return uids
}

// writeCompatibleDOT writes a dump as kube-controller-manager does: the same statements,
// one to a line, and the same attributes in the same order, of which the label is in its
// form, too. It sets nothing for how the picture is to look.
func writeCompatibleDOT(w io.Writer, d graph.Dump) error {
	var b strings.Builder
	b.WriteString("strict digraph full {\n")
	if len(d.Nodes) > 0 {
		b.WriteString("  // Node definitions.\n")
	}
	for _, n := range d.Nodes {
		n = printable(n)
		if n.State == "gone" {
			n.Namespace = "" // kube-controller-manager knows it from a reference, which has none
		}
		list := attributes(n)
		list[0][1] = compatibleLabel(n)
		writeNode(&b, n, list)
	}
	if len(d.Edges) > 0 {
		b.WriteString("  // Edge definitions.\n")
	}
	for _, e := range d.Edges {
		fmt.Fprintf(&b, "  %s -> %s;\n", quote(escape.Text(string(e.Dependent))), quote(escape.Text(string(e.Owner))))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// compatibleLabel is what kube-controller-manager writes into a vertex: coordinates as
// kubectl takes them, and in which states the object is.
func compatibleLabel(n graph.DumpNode) string {
	gvk := schema.FromAPIVersionAndKind(n.APIVersion, n.Kind)
	kind := gvk.Kind + "." + gvk.Version
	if gvk.Group != "" {
		kind += "." + gvk.Group
	}
	label := fmt.Sprintf("uid=%s\nnamespace=%s\n%s/%s\n", n.UID, n.Namespace, kind, n.Name)
	var states []string
	for _, s := range []struct {
		name string
		is   bool
	}{
		{"beingDeleted", n.Terminating},
		{"deletingDependents", n.Terminating && n.Foreground},
		{"virtual", n.State == "named"},
		{"missingFromGraph", n.State == "gone"},
	} {
		if s.is {
			states = append(states, s.name)
		}
	}
	if len(states) > 0 {
		label += strings.Join(states, ",") + "\n"
	}
	return label
}
