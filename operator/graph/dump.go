package graph

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxDumpedOwners is the maximum number of owner references of one object in a Dump.
const maxDumpedOwners = 100

// Dump is the graph as plain data: nodes and edges sorted by UID. It omits objects with
// neither owners nor dependents (G-76), and an object's owner references beyond the first
// hundred.
type Dump struct {
	Nodes []DumpNode `json:"nodes"`
	Edges []DumpEdge `json:"edges"`
}

// DumpNode is one object.
type DumpNode struct {
	UID         types.UID `json:"uid"`
	State       string    `json:"state"` // seen, named or gone
	APIVersion  string    `json:"apiVersion,omitempty"`
	Kind        string    `json:"kind,omitempty"`
	Namespace   string    `json:"namespace,omitempty"`
	Name        string    `json:"name,omitempty"`
	Terminating bool      `json:"terminating,omitempty"`
	Foreground  bool      `json:"foreground,omitempty"`
	Orphan      bool      `json:"orphan,omitempty"`

	OwnersOmitted int `json:"ownersOmitted,omitempty"` // owner references that are omitted
}

// DumpEdge is one owner reference, from the dependent to the owner.
type DumpEdge struct {
	Dependent types.UID `json:"dependent"`
	Owner     types.UID `json:"owner"`
	Blocking  bool      `json:"blocking,omitempty"`
}

// Dump returns the whole graph or, if UIDs are given, their connected components: owners
// and dependents, transitively (G-77). Unknown UIDs are ignored.
func (g *Graph) Dump(uids ...types.UID) Dump {
	included := g.related()
	if len(uids) != 0 {
		included = g.component(uids)
	}
	var d Dump
	for n := range included {
		d.Nodes = append(d.Nodes, g.dumpNode(n))
		for i := range n.dumped() {
			c := &n.claims[i]
			d.Edges = append(d.Edges, DumpEdge{Dependent: g.uidOf(n.id), Owner: g.uidOf(c.owner.id), Blocking: c.blocks()})
		}
	}
	slices.SortFunc(d.Nodes, func(a, b DumpNode) int { return cmp.Compare(a.UID, b.UID) })
	slices.SortStableFunc(d.Edges, func(a, b DumpEdge) int {
		return cmp.Or(cmp.Compare(a.Dependent, b.Dependent), cmp.Compare(a.Owner, b.Owner))
	})
	return d
}

// dumped returns the claims of a node that a Dump contains.
func (n *node) dumped() []claim { return n.claims[:min(len(n.claims), maxDumpedOwners)] }

// related returns all nodes with owners or dependents that a Dump contains.
func (g *Graph) related() map[*node]bool {
	found := map[*node]bool{}
	for _, n := range g.nodes {
		if len(n.claims) != 0 || n.flags.has(seen) && n.dependents != nil {
			found[n] = true
		}
		for i := range n.dumped() {
			found[n.claims[i].owner] = true
		}
	}
	return found
}

func (g *Graph) component(uids []types.UID) map[*node]bool {
	found, open := map[*node]bool{}, []*node{}
	visit := func(n *node) {
		if !found[n] {
			found[n] = true
			open = append(open, n)
		}
	}
	for _, uid := range uids {
		if n, ok := g.nodes[IDOf(uid)]; ok {
			visit(n)
		}
	}
	for len(open) != 0 {
		n := open[len(open)-1]
		open = open[:len(open)-1]
		for i := range n.dumped() {
			visit(n.claims[i].owner)
		}
		for c := n.dependents; c != nil; c = c.next {
			visit(c.dependent)
		}
	}
	return found
}

// dumpNode describes a node by its own coordinates or, if it was never seen, by those that
// a dependent claims.
func (g *Graph) dumpNode(n *node) DumpNode {
	d := DumpNode{
		UID:         g.uidOf(n.id),
		State:       "named",
		Terminating: n.flags.has(terminating),
		Foreground:  n.flags.has(foreground),
		Orphan:      n.flags.has(orphan),

		OwnersOmitted: len(n.claims) - len(n.dumped()),
	}
	switch {
	case n.flags.has(seen):
		d.State = "seen"
	case n.flags.has(gone):
		d.State = "gone"
	default:
		claimed := n.dependents
		for c := claimed; c != nil; c = c.next {
			if lessClaim(c, claimed) {
				claimed = c
			}
		}
		at := claimed.coordinates(d.UID)
		d.APIVersion, d.Kind = at.Kind.ToAPIVersionAndKind()
		d.Namespace, d.Name = at.Namespace, at.Name
		return d
	}
	d.APIVersion, d.Kind = n.kind.WithVersion(n.version.Value()).ToAPIVersionAndKind()
	d.Namespace, d.Name = n.namespace.Value(), n.name
	return d
}

// lessClaim orders claims by content, so that a dump does not depend on the order of events.
func lessClaim(a, b *claim) bool {
	key := func(c *claim) (metav1.TypeMeta, string, string) {
		return c.kind.Value(), c.dependent.namespace.Value(), c.name
	}
	at, ans, aname := key(a)
	bt, bns, bname := key(b)
	return cmp.Or(cmp.Compare(at.APIVersion, bt.APIVersion), cmp.Compare(at.Kind, bt.Kind),
		cmp.Compare(ans, bns), cmp.Compare(aname, bname)) < 0
}
