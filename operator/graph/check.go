package graph

import (
	"errors"
	"fmt"
)

// Check returns all violations of the invariants in the package comment, or nil. It
// visits the whole graph; it is for tests and the debug endpoint.
func (g *Graph) Check() error {
	var breaches []error
	breach := func(n *node, format string, args ...any) {
		breaches = append(breaches, fmt.Errorf("%s: "+format, append([]any{g.uidOf(n.id)}, args...)...))
	}
	claimed, edges := map[*node]int{}, 0
	for _, n := range g.nodes {
		edges += len(n.claims)
		for i := range n.claims {
			claimed[n.claims[i].owner]++
		}
	}
	if edges != g.edges {
		breaches = append(breaches, fmt.Errorf("%d edges, counted %d", edges, g.edges))
	}
	for id, n := range g.nodes {
		if n.id != id {
			breach(n, "kept under the ID %s", id)
		}
		g.checkDependents(n, claimed[n], breach)
		g.checkState(n, breach)
	}
	return errors.Join(breaches...)
}

func (g *Graph) checkDependents(n *node, claimed int, breach func(*node, string, ...any)) {
	listed, blocking := 0, 0
	for c := n.dependents; c != nil; c = c.next {
		listed++
		if c.blocks() {
			blocking++
		}
		if c.owner != n || g.nodes[c.dependent.id] != c.dependent || c.next != nil && c.next.prev != c {
			breach(n, "list of dependents broken at %s", g.uidOf(c.dependent.id))
		}
	}
	if claimed != listed {
		breach(n, "claimed %d times, listed %d times", claimed, listed)
	}
	if blocking != int(n.blocking) {
		breach(n, "blocked %d times, counted %d", blocking, n.blocking)
	}
}

func (g *Graph) checkState(n *node, breach func(*node, string, ...any)) {
	_, hasTime := g.gone[n.id]
	switch {
	case n.flags.has(seen | gone):
		breach(n, "both seen and gone")
	case hasTime != n.flags.has(gone):
		breach(n, "gone is %t, but having a deletion time is %t", n.flags.has(gone), hasTime)
	case n.flags.has(seen):
		if int(n.index) >= len(n.kind.nodes) || n.kind.nodes[n.index] != n {
			breach(n, "not among the %s at %d", n.kind.GroupKind, n.index)
		}
	case n.dependents == nil:
		breach(n, "neither seen nor named")
	case len(n.claims) != 0:
		breach(n, "claims owners without being seen")
	}
}
