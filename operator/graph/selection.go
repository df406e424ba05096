package graph

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/selection"
)

// selectionTable has the Selections of seen nodes in their current resourceVersion.
type selectionTable map[ID]selection.Selection

func (t selectionTable) set(id ID, s selection.Selection) {
	if !s.IsEmpty() {
		t[id] = s
	}
}

func (g *Graph) labeled(e Labeled) {
	n, ok := g.nodes[IDOf(e.UID)]
	if ok && n.flags.has(seen) && g.hasVersion(n, e.ResourceVersion) {
		g.selections.set(n.id, e.Selection)
	}
}

// hasVersion reports whether a seen node has a resourceVersion.
func (g *Graph) hasVersion(n *node, resourceVersion string) bool {
	if v, ok := parseVersion(resourceVersion); ok {
		return n.resourceVersion == v
	}
	odd, ok := g.nonNumericVersions[n.id]
	return ok && odd == resourceVersion
}

// selectionOf returns the Selection of a node. It is empty where a resourceVersion may not stand
// for the same labels: in types of aggregated API servers, and after the watch has ended, until
// an event shows that the storage was not restored.
func (g *Graph) selectionOf(n *node) selection.Selection {
	if n.kind.incomparable || n.kind.interruptedNow {
		return selection.Selection{}
	}
	return g.selections[n.id]
}

// Selections calls yield for every seen object of a kind, with its namespace and its Selection, in
// no order, until yield returns false.
func (g *Graph) Selections(gk schema.GroupKind, yield func(namespace string, s selection.Selection) bool) {
	k, ok := g.kinds[gk]
	if !ok || k.incomparable {
		return
	}
	for _, n := range k.nodes {
		if !yield(n.namespace.Value(), g.selections[n.id]) {
			return
		}
	}
}
