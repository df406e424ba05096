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

// compatiblePaths are the paths at which kube-controller-manager serves the graph of its
// collector: newer and older versions have different names for the controller.
var compatiblePaths = []string{
	"/debug/controllers/garbage-collector-controller/graph",
	"/debug/controllers/garbagecollector/graph",
}

// compatibleGraph serves the graph to tools made for kube-controller-manager: always as DOT,
// and empty for a UID that is unknown, that the client may not get, or that has neither
// owners nor dependents.
func (s Source) compatibleGraph(w http.ResponseWriter, r *http.Request) {
	dump := filterGraph(dropUnrelated(s.Dump(parseUIDs(r)...)), s.ReadAccess(r))
	w.Header().Set("Content-Type", "text/vnd.graphviz")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = writeCompatibleDOT(w, dump) // the client has disconnected
}

// dropUnrelated returns the dump without nodes that have neither owners nor dependents, which
// kube-controller-manager omits even if they are requested.
func dropUnrelated(d graph.Dump) graph.Dump {
	connected := map[types.UID]bool{}
	for _, e := range d.Edges {
		connected[e.Dependent], connected[e.Owner] = true, true
	}
	d.Nodes = slices.DeleteFunc(d.Nodes, func(n graph.DumpNode) bool { return !connected[n.UID] })
	return d
}

// parseUIDs returns the UIDs in a request; none: all.
func parseUIDs(r *http.Request) []types.UID {
	var uids []types.UID
	for _, uid := range r.URL.Query()["uid"] {
		uids = append(uids, types.UID(uid))
	}
	return uids
}

// writeCompatibleDOT writes a dump like kube-controller-manager: the same statements, one
// per line, and the same attributes in the same order, including the format of the label.
// It sets no layout attributes.
func writeCompatibleDOT(w io.Writer, d graph.Dump) error {
	var b strings.Builder
	b.WriteString("strict digraph full {\n")
	if len(d.Nodes) > 0 {
		b.WriteString("  // Node definitions.\n")
	}
	for _, n := range d.Nodes {
		n = escapeNode(n)
		if n.State == "gone" {
			n.Namespace = "" // kube-controller-manager takes it from an owner reference, which has no namespace
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

// compatibleLabel returns the label that kube-controller-manager writes: the object as
// kubectl accepts it, and its states.
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
