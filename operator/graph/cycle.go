package graph

import "bytes"

// Edge is one blocking reference, from a dependent to its owner.
type Edge struct {
	Dependent View
	Owner     ID
	Size      int // objects in the cycle that the edge was found in
}

// Cycle finds out whether an object that is being deleted in the foreground
// waits for itself: whether it lies on a cycle of such objects, each blocking
// the next. Then none of them can ever finish, and the answer is the one edge
// to unblock. Every object of one cycle is given the same edge, so that
// workers who meet on it take away no second one (defect 3.19).
//
// The objects on a common cycle with n are those that own it, directly or
// not, and depend on it. Owners are few where dependents are many, so they are
// gathered first and the way back is searched among them alone.
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
	c := leastEdge(component)
	if c == nil {
		return Edge{}, false
	}
	view, _ := g.Look(c.dependent.id)
	return Edge{Dependent: view, Owner: c.owner.id, Size: len(component)}, true
}

// maxCycleClaims is how many owner references are followed in search of a cycle. Cycles
// that happen have a few objects; to be held up by a larger one is its author's problem.
const maxCycleClaims = 50_000

// ownersOf returns the waiting objects that n blocks, directly or through
// other waiting objects, and n. It reports false if there is too much to follow.
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

// dependentsAmong returns those of the nodes that n can be reached from along
// blocking references without leaving them, and n: with nodes from ownersOf,
// the strongly connected component of n.
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

// leastEdge returns the first blocking reference inside a component of the
// dependent with the lowest ID that has one, or nil if there is none.
func leastEdge(component map[*node]bool) *claim {
	var least *claim
	for d := range component {
		if least != nil && bytes.Compare(d.id[:], least.dependent.id[:]) > 0 {
			continue
		}
		for i := range d.claims {
			if c := &d.claims[i]; c.blocks() && component[c.owner] {
				least = c
				break
			}
		}
	}
	return least
}
