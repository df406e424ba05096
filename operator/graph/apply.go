package graph

import (
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Apply takes in one event and appends to dirty the objects whose situation
// may now ask for something, without regard to order or repetition. It is
// level-based: equal knowledge, come by in whatever order, leaves an equal
// graph, and nothing depends on having seen one particular change (defect 3.4).
func (g *Graph) Apply(e Event, dirty []ID) []ID {
	w := wake{list: dirty}
	switch e := e.(type) {
	case Seen:
		g.seen(e.Object, &w)
	case Read:
		g.disprove(e.Object)
		if g.isNews(e.Object) {
			g.see(e.Object, &w)
		}
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
		g.expired(e)
	}
	return w.list
}

// wake collects the objects to be looked at.
type wake struct{ list []ID }

func (w *wake) node(n *node) {
	if last := len(w.list) - 1; last >= 0 && w.list[last] == n.id {
		return // one object's claims on an owner follow each other
	}
	if needs(n) {
		w.list = append(w.list, n.id)
	}
}

// dependentsOf wakes those that the owner's new standing may concern.
func (w *wake) dependentsOf(n *node) {
	for c := n.dependents; c != nil; c = c.next {
		w.node(c.dependent)
	}
}

// released wakes an owner on which nothing is left to wait for.
func (w *wake) released(owner *node) {
	switch {
	case owner.orphans() && owner.dependents == nil:
		w.node(owner)
	case owner.waits() && owner.blocking == 0:
		w.node(owner)
	}
}

// seen is see for what the type's own watch delivered.
func (g *Graph) seen(o Object, w *wake) {
	g.mark(o.Kind.GroupKind(), o.ResourceVersion)
	g.disprove(o)
	g.see(o, w)
}

// disprove drops the proofs that an object does not exist, since it was seen,
// or read, after all (defect 3.23). They are not needed where it was seen
// elsewhere than a reference claims, and cost one more read there.
func (g *Graph) disprove(o Object) {
	if len(g.proofs) != 0 {
		delete(g.proofs, IDOf(o.UID))
	}
}

// mark raises a type's watermark. A list may be older than what the watch
// before it delivered; the mark stays then, since a Read below it is not news.
func (g *Graph) mark(gk schema.GroupKind, resourceVersion string) {
	k := g.kindOf(gk)
	k.silent = k.silent && k.listing != 0 // a list says so once it is complete
	if v, ok := number(resourceVersion); ok && v > k.watermark && !k.incomparable {
		k.watermark = v
	}
}

// isNews reports whether a Read is newer than all that the watch of its type
// has delivered. Of a type without a watermark nothing is.
func (g *Graph) isNews(o Object) bool {
	k, ok := g.kinds[o.Kind.GroupKind()]
	if !ok || k.watermark == 0 {
		return false
	}
	v, ok := number(o.ResourceVersion)
	return ok && v > k.watermark
}

func (g *Graph) see(o Object, w *wake) {
	if o.UID == "" {
		return
	}
	n := g.ensure(o.UID)
	if n.flags.has(seen) {
		if n.kind.GroupKind != o.Kind.GroupKind() {
			g.twin(n.kind, o.Kind.GroupKind())
			return
		}
		if n.isNewerThan(o) {
			return // a watch catching up with what a read told earlier
		}
	}
	was := n.flags
	moved := g.place(n, o)
	n.flags = flagsOf(o)
	relinked := g.relink(n, o.Owners, w)
	if n.flags == was && !relinked && !moved {
		return // nothing but the resourceVersion: that wakes nobody (defect 3.13)
	}
	w.node(n)
	if moved || n.flags&^private != was&^private {
		w.dependentsOf(n)
	}
}

// twin notes that an object is shown under two kinds.
func (g *Graph) twin(first *kind, second schema.GroupKind) {
	g.twins++
	g.pairs[Twins{First: first.GroupKind, Second: second}] = struct{}{}
}

// isNewerThan reports whether a seen node is known to be newer than what came. It is
// not where a list has the object older than its own resourceVersion lets it be: then
// the storage was restored, and goes on from a later revision.
func (n *node) isNewerThan(o Object) bool {
	if n.kind.incomparable || n.kind.restoring {
		return false
	}
	v, ok := number(o.ResourceVersion)
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
		{o.Held, held}, {o.Memo, remembered}, {o.Truncated || len(o.Owners) > MaxOwners, truncated},
	} {
		if bit.on {
			f |= bit.f
		}
	}
	return f
}

// place gives a node its coordinates and version. It reports whether its
// coordinates are other than they were, as for a node that was only named.
func (g *Graph) place(n *node, o Object) (moved bool) {
	if v, ok := number(o.ResourceVersion); ok {
		n.resourceVersion = v
		delete(g.oddVersions, n.id)
	} else {
		n.resourceVersion = 0
		g.oddVersions[n.id] = o.ResourceVersion
	}
	version := unique.Make(o.Kind.Version)
	if n.flags.has(seen) && n.name == o.Name && n.version == version && n.namespace.Value() == o.Namespace {
		return false
	}
	n.name, n.version, n.namespace = o.Name, version, unique.Make(o.Namespace)
	delete(g.gone, n.id)
	if !n.flags.has(seen) {
		n.kind = g.kindOf(o.Kind.GroupKind())
		n.place = uint32(len(n.kind.nodes))
		n.kind.nodes = append(n.kind.nodes, n)
		for c := n.dependents; c != nil; c = c.next {
			expectDependents(n.kind, c.dependent)
		}
	}
	return true
}

func (g *Graph) deleted(e Deleted, w *wake) {
	g.mark(e.Object.Kind.GroupKind(), e.Object.ResourceVersion)
	n, ok := g.nodes[IDOf(e.Object.UID)]
	if !ok {
		return
	}
	if n.kind != nil && n.kind.GroupKind != e.Object.Kind.GroupKind() {
		g.twin(n.kind, e.Object.Kind.GroupKind())
		return
	}
	if !n.flags.has(seen) { // its deletion is the first we hear of it (G-29)
		n.name, n.namespace = e.Object.Name, unique.Make(e.Object.Namespace)
		n.version, n.kind = unique.Make(e.Object.Kind.Version), g.kindOf(e.Object.Kind.GroupKind())
	}
	k := n.kind
	g.unsee(n, w)
	n.kind, n.flags = k, gone
	if n.dependents != nil {
		g.gone[n.id] = e.At
		w.dependentsOf(n)
	}
	g.drop(n)
}

// unsee turns a seen node into a named one, or into none.
func (g *Graph) unsee(n *node, w *wake) {
	if !n.flags.has(seen) {
		return
	}
	g.relink(n, nil, w)
	last := n.kind.nodes[len(n.kind.nodes)-1]
	n.kind.nodes[n.place], last.place = last, n.place
	n.kind.nodes[len(n.kind.nodes)-1] = nil
	n.kind.nodes = n.kind.nodes[:len(n.kind.nodes)-1]
	n.kind, n.flags = nil, 0
	delete(g.oddVersions, n.id)
}

// lose is for an object that is not seen any more and not known to be gone.
func (g *Graph) lose(n *node, w *wake) {
	g.unsee(n, w)
	w.dependentsOf(n)
	g.drop(n)
}

func (g *Graph) absent(e Absent, w *wake) {
	n, ok := g.nodes[IDOf(e.Claim.UID)]
	if !ok {
		return
	}
	if n.flags.has(seen) && n.isAt(e.Claim) {
		g.unsee(n, w) // its claims and its dependents' are looked at once more
		w.dependentsOf(n)
	}
	if n.dependents == nil {
		g.drop(n)
		return
	}
	proofs := g.proofs[n.id]
	for i := range proofs {
		if proofs[i].claim == e.Claim {
			proofs[i].at = e.At
			return
		}
	}
	p := proof{claim: e.Claim, at: e.At}
	if len(proofs) == proofsKept {
		proofs = slices.Delete(proofs, 0, 1)
	}
	g.proofs[n.id] = append(proofs, p)
	for c := n.dependents; c != nil; c = c.next {
		if c.name == e.Claim.Name && p.covers(c.coordinates(e.Claim.UID)) {
			w.node(c.dependent)
		}
	}
}

// proofsKept is how many different claims on one UID are remembered to be
// disproved. Honest references need one; others are asked about again.
const proofsKept = 64

// isAt reports whether the node's own coordinates are these, by whatever
// version.
func (n *node) isAt(c Coordinates) bool {
	return n.kind != nil && n.kind.GroupKind == c.Kind.GroupKind() && n.name == c.Name &&
		(n.namespace.Value() == "" || n.namespace.Value() == c.Namespace)
}

func (g *Graph) expired(e Expired) {
	for id, proofs := range g.proofs {
		kept := proofs[:0]
		for _, p := range proofs {
			if !p.at.Before(e.Before) {
				kept = append(kept, p)
			}
		}
		if len(kept) == 0 {
			delete(g.proofs, id)
			continue
		}
		g.proofs[id] = kept
	}
}

// relink gives a node the claims of refs and reports whether they are others
// than it had. Owners that it leaves, or blocks no longer, are woken if that
// was all they waited for (G-20).
func (g *Graph) relink(n *node, refs []metav1.OwnerReference, w *wake) bool {
	refs = refs[:min(len(refs), MaxOwners)]
	if g.sameClaims(n.claims, refs) {
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
		w.released(former[i].owner)
		g.drop(former[i].owner)
	}
	return true
}

// markRepeated tells the first claim on each owner from later ones.
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
	c.next = c.owner.dependents
	if c.next != nil {
		c.next.prev = c
	}
	c.owner.dependents = c
	g.edges++
	if c.blocks() {
		c.owner.blocking++
	}
	if c.owner.kind != nil {
		expectDependents(c.owner.kind, dependent)
	}
}

func (g *Graph) unlink(c *claim) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		c.owner.dependents = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.next, c.prev = nil, nil
	g.edges--
	if c.blocks() {
		c.owner.blocking--
	}
}

// expectDependents remembers that objects of the dependent's kind name owners
// of kind k.
func expectDependents(k *kind, dependent *node) {
	if dependent.kind == nil {
		return
	}
	if k.dependents == nil {
		k.dependents = map[schema.GroupKind]struct{}{}
	}
	k.dependents[dependent.kind.GroupKind] = struct{}{}
}
