package graph

import (
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Apply applies one event and appends to dirty the objects that may now need work, in any
// order and possibly repeated. It is level-based: the same knowledge leads to the same
// graph regardless of the order of events, and nothing depends on having seen a particular
// change (defect 3.4).
func (g *Graph) Apply(e Event, dirty []ID) []ID {
	w := dirtyList{list: dirty}
	switch e := e.(type) {
	case Seen:
		g.seen(e.Object, &w)
	case Read:
		g.proofs.drop(e.Object)
		if g.isNewer(e.Object) {
			g.upsert(e.Object, &w)
		}
	case Labeled:
		g.labeled(e)
	case Deleted:
		g.deleted(e, &w)
	case Listing:
		g.listing(e)
	case Relisted:
		g.relisted(e, &w)
	case TypeGone:
		g.typeGone(e.Kind, &w)
	case Absent:
		g.absent(e, &w)
	case Interrupted:
		g.interrupted(e)
	case Expired:
		g.proofs.expire(e)
	}
	return w.list
}

// dirtyList collects the objects that may need work.
type dirtyList struct{ list []ID }

func (w *dirtyList) add(n *node) {
	if last := len(w.list) - 1; last >= 0 && w.list[last] == n.id {
		return // claims of one object on an owner are adjacent
	}
	if needsWork(n) {
		w.list = append(w.list, n.id)
	}
}

// addDependents adds the dependents of an owner whose status may have changed.
func (w *dirtyList) addDependents(n *node) {
	for c := n.dependents; c != nil; c = c.next {
		w.add(c.dependent)
	}
}

// addIfUnblocked adds an owner that has no dependents left to wait for, or, if it has a hold, none of
// the kind of a former one.
func (w *dirtyList) addIfUnblocked(owner *node, former *kind) {
	switch {
	case owner.orphans() && owner.dependents == nil:
		w.add(owner)
	case owner.waits() && owner.blocking == 0:
		w.add(owner)
	case owner.flags.has(seen|terminating|held) && (owner.blocking == 0 || !owner.hasDependentOf(former)):
		w.add(owner) // a client's request may be carried out now, or dependents of another kind be deleted
	}
}

// seen is see for an object that the watch of its type delivered.
func (g *Graph) seen(o Object, w *dirtyList) {
	g.advanceWatermark(o.Kind.GroupKind(), o.ResourceVersion)
	g.proofs.drop(o)
	g.upsert(o, w)
}

func (g *Graph) upsert(o Object, w *dirtyList) {
	if o.UID == "" {
		return
	}
	n := g.ensure(o.UID)
	if n.flags.has(seen) {
		if n.kind.GroupKind != o.Kind.GroupKind() {
			g.recordEquivalent(n.kind, o.Kind.GroupKind())
			return
		}
		if n.isNewerThan(o) {
			return // the watch is behind an earlier read
		}
	}
	was := n.flags
	if o.Selection.IsEmpty() && !g.hasVersion(n, o.ResourceVersion) {
		delete(g.selections, n.id)
	}
	g.selections.set(n.id, o.Selection)
	moved := g.setCoordinates(n, o)
	n.flags = flagsOf(o)
	relinked := g.relink(n, o.Owners, w)
	if n.flags == was && !relinked && !moved {
		return // only the resourceVersion has changed: no work (defect 3.13)
	}
	w.add(n)
	if moved || n.flags&^ownFlags != was&^ownFlags {
		w.addDependents(n)
	}
}

// isNewerThan reports whether a seen node is known to be newer than the object. If a list
// contains an older version of the object although the node's resourceVersion is not above
// the list's, the storage was restored and continues from a later revision. Then it
// returns false.
func (n *node) isNewerThan(o Object) bool {
	if n.kind.incomparable || n.kind.restoring {
		return false
	}
	v, ok := parseVersion(o.ResourceVersion)
	return ok && v < n.resourceVersion && n.resourceVersion > n.kind.listing
}

func flagsOf(o Object) flags {
	f := seen
	for _, bit := range []struct {
		on bool
		f  flags
	}{
		{o.Terminating, terminating}, {o.Foreground, foreground},
		{o.Orphan, orphan}, {o.OtherFinalizers, otherFinalizers},
		{o.Held, held}, {o.HasState, hasState}, {o.Truncated || len(o.Owners) > MaxOwners, truncated},
	} {
		if bit.on {
			f |= bit.f
		}
	}
	return f
}

// setCoordinates sets a node's coordinates and version. It reports whether the coordinates have
// changed, as for a node that was only named.
func (g *Graph) setCoordinates(n *node, o Object) (moved bool) {
	if v, ok := parseVersion(o.ResourceVersion); ok {
		n.resourceVersion = v
		delete(g.nonNumericVersions, n.id)
	} else {
		n.resourceVersion = 0
		g.nonNumericVersions[n.id] = o.ResourceVersion
	}
	version := unique.Make(o.Kind.Version)
	if n.flags.has(seen) && n.name == o.Name && n.version == version && n.namespace.Value() == o.Namespace {
		return false
	}
	n.name, n.version, n.namespace = o.Name, version, unique.Make(o.Namespace)
	delete(g.gone, n.id)
	if !n.flags.has(seen) {
		n.kind = g.kindOf(o.Kind.GroupKind())
		n.index = uint32(len(n.kind.nodes))
		n.kind.nodes = append(n.kind.nodes, n)
		for c := n.dependents; c != nil; c = c.next {
			expectDependents(n.kind, c.dependent)
		}
	}
	return true
}

func (g *Graph) deleted(e Deleted, w *dirtyList) {
	g.advanceWatermark(e.Object.Kind.GroupKind(), e.Object.ResourceVersion)
	n, ok := g.nodes[IDOf(e.Object.UID)]
	if !ok {
		return
	}
	if n.kind != nil && n.kind.GroupKind != e.Object.Kind.GroupKind() {
		g.recordEquivalent(n.kind, e.Object.Kind.GroupKind())
		return
	}
	if !n.flags.has(seen) { // its deletion is its first event (G-29)
		n.name, n.namespace = e.Object.Name, unique.Make(e.Object.Namespace)
		n.version, n.kind = unique.Make(e.Object.Kind.Version), g.kindOf(e.Object.Kind.GroupKind())
	}
	k := n.kind
	g.markUnseen(n, w)
	n.kind, n.flags = k, gone
	n.resourceVersion, _ = parseVersion(e.Object.ResourceVersion)
	if n.dependents != nil {
		g.gone[n.id] = e.At
		w.addDependents(n)
	}
	g.drop(n)
}

// markUnseen turns a seen node into a named one, or removes it.
func (g *Graph) markUnseen(n *node, w *dirtyList) {
	if !n.flags.has(seen) {
		return
	}
	g.relink(n, nil, w)
	last := n.kind.nodes[len(n.kind.nodes)-1]
	n.kind.nodes[n.index], last.index = last, n.index
	n.kind.nodes[len(n.kind.nodes)-1] = nil
	n.kind.nodes = n.kind.nodes[:len(n.kind.nodes)-1]
	n.kind, n.flags = nil, 0
	delete(g.nonNumericVersions, n.id)
	delete(g.selections, n.id)
}

// forget handles an object that is no longer seen, but not known to be gone.
func (g *Graph) forget(n *node, w *dirtyList) {
	g.markUnseen(n, w)
	w.addDependents(n)
	g.drop(n)
}

func (g *Graph) absent(e Absent, w *dirtyList) {
	n, ok := g.nodes[IDOf(e.Claim.UID)]
	if !ok {
		return
	}
	if n.flags.has(seen) && n.hasCoordinates(e.Claim) {
		g.markUnseen(n, w)
		w.addDependents(n)
	}
	if n.dependents == nil {
		g.drop(n)
		return
	}
	p := proof{claim: e.Claim, at: e.At}
	if !g.proofs.add(n.id, p) {
		return
	}
	for c := n.dependents; c != nil; c = c.next {
		if c.name == e.Claim.Name && p.covers(c.coordinates(e.Claim.UID)) {
			w.add(c.dependent)
		}
	}
}

// hasCoordinates reports whether the node has these coordinates, in any version.
func (n *node) hasCoordinates(c Coordinates) bool {
	return n.kind != nil && n.kind.GroupKind == c.Kind.GroupKind() && n.name == c.Name &&
		(n.namespace.Value() == "" || n.namespace.Value() == c.Namespace)
}

// relink replaces a node's claims with those of refs, and reports whether they have
// changed. Owners that it no longer references or blocks are added to w if they have
// nothing left to wait for (G-20).
func (g *Graph) relink(n *node, refs []metav1.OwnerReference, w *dirtyList) bool {
	refs = refs[:min(len(refs), MaxOwners)]
	if sameClaims(n.claims, refs) {
		return false
	}
	former := n.claims
	for i := range former {
		g.unlink(&former[i])
	}
	n.claims = nil
	if len(refs) != 0 {
		n.claims = make([]claim, len(refs))
	}
	for i := range refs {
		g.link(&n.claims[i], n, refs[i])
	}
	markRepeated(n.claims)
	for i := range former {
		w.addIfUnblocked(former[i].owner, n.kind)
		g.drop(former[i].owner)
	}
	return true
}

// markRepeated marks all but the first claim on each owner.
func markRepeated(claims []claim) {
	if len(claims) < 2 {
		return
	}
	known := make(map[*node]struct{}, len(claims))
	for i := range claims {
		if _, ok := known[claims[i].owner]; ok {
			claims[i].flags |= repeated
		}
		known[claims[i].owner] = struct{}{}
	}
}

func (g *Graph) link(c *claim, dependent *node, ref metav1.OwnerReference) {
	*c = claim{
		dependent: dependent,
		owner:     g.ensure(ref.UID),
		name:      ref.Name,
		kind:      unique.Make(metav1.TypeMeta{APIVersion: ref.APIVersion, Kind: ref.Kind}),
		flags:     claimFlagsOf(ref),
	}
	c.owner.append(c)
	g.edges++
	if c.blocks() {
		c.owner.blocking++
	}
	if c.owner.kind != nil {
		expectDependents(c.owner.kind, dependent)
	}
}

func (g *Graph) unlink(c *claim) {
	c.owner.remove(c)
	g.edges--
	if c.blocks() {
		c.owner.blocking--
	}
}

// append adds a claim on a node after the others: dependents are processed in about the order
// of their creation, in which lists often have them, too.
func (n *node) append(c *claim) {
	first := n.dependents
	if first == nil {
		n.dependents, c.prev = c, c
		return
	}
	last := first.prev
	last.next, c.prev, first.prev = c, last, c
}

// ManyDependents is the number of dependents of an owner up to which it is queued when the last one of a kind is
// gone: looking for another one takes time under the lock.
const ManyDependents = 4096

// hasDependentOf reports whether the node has dependents of a kind, or may have, since it has many dependents.
func (n *node) hasDependentOf(k *kind) bool {
	steps := 0
	for c := n.dependents; c != nil; c = c.next {
		if steps++; c.dependent.kind == k && n.mayOwn(c.dependent) || steps > ManyDependents {
			return true
		}
	}
	return false
}

// remove removes a claim on a node.
func (n *node) remove(c *claim) {
	first := n.dependents
	if c.next != nil {
		c.next.prev = c.prev // if c was the first: the last one
	} else {
		first.prev = c.prev
	}
	if c == first {
		n.dependents = c.next
	} else {
		c.prev.next = c.next
	}
	c.next, c.prev = nil, nil
}

// expectDependents records that objects of the dependent's kind reference owners of
// kind k.
func expectDependents(k *kind, dependent *node) {
	if dependent.kind == nil {
		return
	}
	if k.dependents == nil {
		k.dependents = map[schema.GroupKind]struct{}{}
	}
	k.dependents[dependent.kind.GroupKind] = struct{}{}
}
