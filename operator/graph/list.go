package graph

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (g *Graph) relisted(e Relisted, w *dirtyList) {
	k := g.kindOf(e.Kind)
	k.endStream()
	g.advanceWatermark(e.Kind, e.ResourceVersion)
	listed, comparable := parseVersion(e.ResourceVersion)
	comparable = comparable && !k.incomparable && !k.restoring
	k.restoring, k.listing, k.interruptedNow = false, 0, false
	for i := len(k.nodes) - 1; i >= 0; i-- { // backwards, since markUnseen swaps the last node into its place
		n := k.nodes[i]
		if _, ok := e.Listed[n.id]; ok {
			continue
		}
		if comparable && n.resourceVersion > listed {
			continue // it was read after the list was made
		}
		g.forget(n, w)
	}
}

func (g *Graph) typeGone(gk schema.GroupKind, w *dirtyList) {
	k, ok := g.kinds[gk]
	if !ok {
		return
	}
	for i := len(k.nodes) - 1; i >= 0; i-- {
		g.forget(k.nodes[i], w)
	}
	delete(g.kinds, gk) // but keep kinds of dependents, since the type may come back: see expectDependents
	if len(k.dependents) != 0 {
		g.kinds[gk] = &kind{GroupKind: gk, dependents: k.dependents, interrupted: k.interrupted}
	}
}
