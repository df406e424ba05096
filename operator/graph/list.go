package graph

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (g *Graph) listing(e Listing) {
	k := g.kindOf(e.Kind)
	k.incomparable = e.Incomparable
	if e.Incomparable {
		k.watermark = 0
	}
	v, ok := number(e.ResourceVersion)
	if !ok {
		return
	}
	k.listing = v
	if v < k.watermark {
		k.restoring, k.watermark = true, v
	}
}

func (g *Graph) relisted(e Relisted, w *wake) {
	g.mark(e.Kind, e.ResourceVersion)
	listed, comparable := number(e.ResourceVersion)
	k := g.kindOf(e.Kind)
	comparable = comparable && !k.incomparable && !k.restoring
	k.restoring, k.listing, k.silent = false, 0, false
	for i := len(k.nodes) - 1; i >= 0; i-- { // backwards, since losing one swaps the last into its place
		n := k.nodes[i]
		if _, ok := e.Listed[n.id]; ok {
			continue
		}
		if comparable && n.resourceVersion > listed {
			continue // a read told of it after the list was made
		}
		g.lose(n, w)
	}
}

func (g *Graph) typeGone(gk schema.GroupKind, w *wake) {
	k, ok := g.kinds[gk]
	if !ok {
		return
	}
	for i := len(k.nodes) - 1; i >= 0; i-- {
		g.lose(k.nodes[i], w)
	}
	delete(g.kinds, gk) // but what depends on it, and it on what, may come back: see expectDependents
	if len(k.dependents) != 0 {
		g.kinds[gk] = &kind{GroupKind: gk, dependents: k.dependents, interrupted: k.interrupted}
	}
}

func (g *Graph) interrupted(e Interrupted) {
	k := g.kindOf(e.Kind)
	k.silent = true
	if e.At.After(k.interrupted) {
		k.interrupted = e.At
	}
}

// doubts reports whether what was learnt of a type's objects at a time was
// learnt before its watch was last interrupted.
func (g *Graph) doubts(gk schema.GroupKind, learnt time.Time) bool {
	k, ok := g.kinds[gk]
	return ok && !k.interrupted.IsZero() && !learnt.After(k.interrupted)
}
