package graph

import (
	"errors"
	"fmt"
)

// Check returns all violations of the invariants in the package comment, or nil. It
// visits the whole graph; it is for tests and the debug endpoint.
func (g *Graph) Check() error {
	k := &checker{Graph: g}
	claimed, edges := map[*node]int{}, 0
	for _, n := range g.nodes {
		edges += len(n.claims)
		for i := range n.claims {
			claimed[n.claims[i].owner]++
		}
	}
	if edges != g.edges {
		k.breaches = append(k.breaches, fmt.Errorf("%d edges, counted %d", edges, g.edges))
	}
	for id, n := range g.nodes {
		if n.id != id {
			k.breach(n, "kept under the ID %s", id)
		}
		k.checkDependents(n, claimed[n])
		k.checkState(n)
	}
	for id := range g.selections {
		if n, ok := g.nodes[id]; !ok || !n.flags.has(seen) {
			k.breaches = append(k.breaches, fmt.Errorf("%s has a selection without being seen", id))
		}
	}
	return errors.Join(k.breaches...)
}

// checker collects violations.
type checker struct {
	*Graph
	breaches []error
}

func (k *checker) breach(n *node, format string, args ...any) {
	k.breaches = append(k.breaches, fmt.Errorf("%s: "+format, append([]any{k.uidOf(n.id)}, args...)...))
}

func (k *checker) checkDependents(n *node, claimed int) {
	listed, blocking := 0, 0
	for c := n.dependents; c != nil; c = c.next {
		listed++
		if c.blocks() {
			blocking++
		}
		after := c.next
		if after == nil {
			after = n.dependents // before which the last one is
		}
		if c.owner != n || k.nodes[c.dependent.id] != c.dependent || after.prev != c {
			k.breach(n, "list of dependents broken at %s", k.uidOf(c.dependent.id))
		}
	}
	if claimed != listed {
		k.breach(n, "claimed %d times, listed %d times", claimed, listed)
	}
	if blocking != int(n.blocking) {
		k.breach(n, "blocked %d times, counted %d", blocking, n.blocking)
	}
}

func (k *checker) checkState(n *node) {
	_, hasTime := k.gone[n.id]
	switch {
	case n.flags.has(seen | gone):
		k.breach(n, "both seen and gone")
	case hasTime != n.flags.has(gone):
		k.breach(n, "gone is %t, but having a deletion time is %t", n.flags.has(gone), hasTime)
	case n.flags.has(seen):
		if int(n.index) >= len(n.kind.nodes) || n.kind.nodes[n.index] != n {
			k.breach(n, "not among the %s at %d", n.kind.GroupKind, n.index)
		}
	case n.dependents == nil:
		k.breach(n, "neither seen nor named")
	case len(n.claims) != 0:
		k.breach(n, "claims owners without being seen")
	}
}
