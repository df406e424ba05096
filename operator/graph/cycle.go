package graph

import "bytes"

// Edge is one blocking reference, from a dependent to its owner.
type Edge struct {
	Dependent View
	Owner     ID
	Size      int // objects in the cycle that the edge was found in
}

// Cycle reports whether an object in foreground deletion waits for itself: whether it is
// part of a cycle of such objects, each blocking the next. None of them can ever finish,
// so Cycle returns the one edge to unblock. It returns the same edge for every object of a
// cycle, so concurrent workers do not unblock a second one (defect 3.19).
//
// The objects on a cycle with n own it, directly or indirectly, and depend on it. There
// are usually fewer owners than dependents, so owners are collected first and the way back
// is searched only among them.
func (g *Graph) Cycle(id ID) (Edge, bool) {
	start, ok := g.nodes[id]
	if !ok || !start.waits() {
		return Edge{}, false
	}
	owners, complete := ownersOf(start)
	if !complete {
		return Edge{}, false
	}
	component := dependentsAmong(owners, start)
	c := lowestEdge(component)
	if c == nil {
		return Edge{}, false
	}
	view, _ := g.Lookup(c.dependent.id)
	return Edge{Dependent: view, Owner: c.owner.id, Size: len(component)}, true
}

// maxCycleClaims is the maximum number of owner references that are followed to find a
// cycle. Real cycles have few objects; a larger one is not resolved.
const maxCycleClaims = 50_000

// ownersOf returns the waiting objects that n blocks, directly or through
// other waiting objects, and n. It returns false if there are too many.
func ownersOf(n *node) (found map[*node]bool, complete bool) {
	found, open := map[*node]bool{n: true}, []*node{n}
	for followed := 0; len(open) != 0; {
		n, open = open[len(open)-1], open[:len(open)-1]
		if followed += len(n.claims); followed > maxCycleClaims {
			return nil, false
		}
		for i := range n.claims {
			if c := &n.claims[i]; c.blocks() && c.owner.waits() && !found[c.owner] {
				found[c.owner] = true
				open = append(open, c.owner)
			}
		}
	}
	return found, true
}

// dependentsAmong returns n and the nodes from which n can be reached along blocking
// references within nodes. With nodes from ownersOf, this is the strongly connected
// component of n.
func dependentsAmong(nodes map[*node]bool, n *node) map[*node]bool {
	blockedBy := map[*node][]*node{}
	for d := range nodes {
		for i := range d.claims {
			if c := &d.claims[i]; c.blocks() && nodes[c.owner] {
				blockedBy[c.owner] = append(blockedBy[c.owner], d)
			}
		}
	}
	found, open := map[*node]bool{n: true}, []*node{n}
	for len(open) != 0 {
		n, open = open[len(open)-1], open[:len(open)-1]
		for _, d := range blockedBy[n] {
			if !found[d] {
				found[d] = true
				open = append(open, d)
			}
		}
	}
	return found
}

// lowestEdge returns the first blocking reference within a component, of the dependent with
// the lowest ID that has one, or nil.
func lowestEdge(component map[*node]bool) *claim {
	var lowest *claim
	for d := range component {
		if lowest != nil && bytes.Compare(d.id[:], lowest.dependent.id[:]) > 0 {
			continue
		}
		for i := range d.claims {
			if c := &d.claims[i]; c.blocks() && component[c.owner] {
				lowest = c
				break
			}
		}
	}
	return lowest
}
