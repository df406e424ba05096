package graph

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Knowledge is what the graph knows of the owner that a reference claims.
type Knowledge uint8

const (
	Unseen     Knowledge = iota // nothing: it has to be asked for
	Elsewhere                   // its UID is seen, but at other coordinates
	Standing                    // seen where it is claimed
	Foreground                  // seen there, and being deleted in the foreground
	Orphaning                   // seen there, and being deleted without its dependents
	Gone                        // its deletion was watched there
	Disproved                   // a live read has shown that it is not there
)

// String returns the name that stories and records use.
func (k Knowledge) String() string {
	names := [...]string{"unseen", "elsewhere", "standing", "foreground", "orphaning", "gone", "disproved"}
	if int(k) < len(names) {
		return names[k]
	}
	return "invalid"
}

// Claim is one owner reference with what the graph knows of the owner.
type Claim struct {
	Reference metav1.OwnerReference
	Known     Knowledge

	// ByVersion is the version that the owner was last read by, when it is
	// known at the claimed coordinates. The reference may name another one
	// (G-35).
	ByVersion string

	// OwnerNamespace is where the owner's UID is seen, if Known is Elsewhere or
	// Disproved; "" for the cluster scope, and for nowhere.
	OwnerNamespace string

	// GoneAt is when the owner's end was learnt, if Known is Gone or Disproved.
	GoneAt time.Time

	// Doubted says that this was before the watch of the owner's type was
	// interrupted: it is to be asked for once more, if that is possible. So it is of an
	// owner that is Orphaning until the watch goes on.
	Doubted bool
}

// View is one seen object as the graph has it: a copy, which stays as it is
// whatever the graph does next.
type View struct {
	ID     ID
	Object Object
	Claims []Claim // one for each of Object.Owners, in the same order

	Dependents     int // that are seen, each counted once
	Blocking       int // references to it that block
	DependentKinds []schema.GroupKind

	// Blockers are some of those whose references block, at most blockersNamed.
	Blockers []Blocker
}

// Blocker is an object that holds up its owner's deletion.
type Blocker struct {
	Object      Coordinates
	Terminating bool // it is on its way out
	Held        bool // and finalizers hold it, other than those of garbage collection
}

// blockersNamed is how many blockers a View names: enough to go and look.
const blockersNamed = 3

// Waits reports whether the object is being deleted in the foreground, and
// Orphans whether it is being deleted and leaves its dependents behind.
func (v View) Waits() bool {
	return v.Object.Terminating && v.Object.Foreground && !v.Object.Orphan && !v.Object.Held
}

// Orphans is documented with Waits.
func (v View) Orphans() bool { return v.Object.Terminating && v.Object.Orphan && !v.Object.Held }

// Claim returns the coordinates that a reference of the object claims.
func (v View) Claim(ref metav1.OwnerReference) Coordinates {
	return Coordinates{UID: ref.UID, Kind: kindOf(ref), Namespace: v.Object.Namespace, Name: ref.Name}
}

// Look returns what the graph knows of an object. There is an answer only for
// one that is seen.
func (g *Graph) Look(id ID) (View, bool) {
	n, ok := g.nodes[id]
	if !ok || !n.flags.has(seen) {
		return View{}, false
	}
	v := View{ID: id, Object: g.objectOf(n), Blocking: int(n.blocking)}
	for i := range n.claims {
		v.Claims = append(v.Claims, g.know(&n.claims[i], v.Object.Owners[i]))
	}
	for c := n.dependents; c != nil; c = c.next {
		if c.first() {
			v.Dependents++
		}
		if c.blocks() && len(v.Blockers) < blockersNamed && n.waits() {
			v.Blockers = append(v.Blockers, g.blockerOf(c.dependent))
		}
	}
	for gk := range n.kind.dependents {
		v.DependentKinds = append(v.DependentKinds, gk)
	}
	return v, true
}

// KindCount is how many objects there are of a kind.
type KindCount struct {
	Kind  schema.GroupKind
	Count int
}

// ByKind counts an object's dependents by kind, sorted; each once.
func (g *Graph) ByKind(id ID) []KindCount {
	n, ok := g.nodes[id]
	if !ok {
		return nil
	}
	counts := map[schema.GroupKind]int{}
	for c := n.dependents; c != nil; c = c.next {
		if c.first() && c.dependent.kind != nil {
			counts[c.dependent.kind.GroupKind]++
		}
	}
	list := make([]KindCount, 0, len(counts))
	for kind, count := range counts {
		list = append(list, KindCount{kind, count})
	}
	slices.SortFunc(list, func(a, b KindCount) int {
		return cmp.Or(cmp.Compare(a.Kind.Group, b.Kind.Group), cmp.Compare(a.Kind.Kind, b.Kind.Kind))
	})
	return list
}

func (g *Graph) blockerOf(n *node) Blocker {
	return Blocker{
		Object: Coordinates{
			UID: g.uidOf(n.id), Kind: n.kind.WithVersion(n.version.Value()), Namespace: n.namespace.Value(), Name: n.name,
		},
		Terminating: n.flags.has(terminating),
		Held:        n.flags.has(terminating) && n.flags&(otherFinalizers|held) != 0,
	}
}

// first reports whether the claim is its dependent's first on this owner.
func (c *claim) first() bool { return c.flags&repeated == 0 }

func (g *Graph) objectOf(n *node) Object {
	o := Object{
		UID:             g.uidOf(n.id),
		ResourceVersion: g.versionOf(n),
		Kind:            n.kind.WithVersion(n.version.Value()),
		Namespace:       n.namespace.Value(),
		Name:            n.name,
		Terminating:     n.flags.has(terminating),
		Foreground:      n.flags.has(foreground),
		Orphan:          n.flags.has(orphan),
		OtherFinalizers: n.flags.has(otherFinalizers),
		Held:            n.flags.has(held),
		Memo:            n.flags.has(remembered),
		Truncated:       n.flags.has(truncated),
	}
	for i := range n.claims {
		o.Owners = append(o.Owners, g.referenceOf(&n.claims[i]))
	}
	return o
}

func (g *Graph) referenceOf(c *claim) metav1.OwnerReference {
	t := c.kind.Value()
	ref := metav1.OwnerReference{APIVersion: t.APIVersion, Kind: t.Kind, Name: c.name, UID: g.uidOf(c.owner.id)}
	if c.flags&controllerSet != 0 {
		ref.Controller = ptr.To(c.flags&controllerTrue != 0)
	}
	if c.flags&blockSet != 0 {
		ref.BlockOwnerDeletion = ptr.To(c.blocks())
	}
	return ref
}

func claimFlagsOf(ref metav1.OwnerReference) claimFlags {
	var f claimFlags
	if ref.Controller != nil {
		f |= controllerSet
	}
	if ptr.Deref(ref.Controller, false) {
		f |= controllerTrue
	}
	if ref.BlockOwnerDeletion != nil {
		f |= blockSet
	}
	if ptr.Deref(ref.BlockOwnerDeletion, false) {
		f |= blockTrue
	}
	return f
}

// sameClaims reports whether refs say, in the same order, what claims hold.
func (g *Graph) sameClaims(claims []claim, refs []metav1.OwnerReference) bool {
	if len(claims) != len(refs) {
		return false
	}
	for i := range claims {
		c, ref := &claims[i], &refs[i]
		t := c.kind.Value()
		if c.name != ref.Name || t.Kind != ref.Kind || t.APIVersion != ref.APIVersion ||
			c.flags&ofReference != claimFlagsOf(*ref) || c.owner.id != IDOf(ref.UID) {
			return false
		}
	}
	return true
}

// kindOf parses a reference's apiVersion. One that can't be parsed is kept
// whole as the version of no group, which no API server serves.
func kindOf(ref metav1.OwnerReference) schema.GroupVersionKind {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		gv = schema.GroupVersion{Version: ref.APIVersion}
	}
	return gv.WithKind(ref.Kind)
}

func (c *claim) coordinates(uid types.UID) Coordinates {
	t := c.kind.Value()
	return Coordinates{
		UID:       uid,
		Kind:      kindOf(metav1.OwnerReference{APIVersion: t.APIVersion, Kind: t.Kind}),
		Namespace: c.dependent.namespace.Value(),
		Name:      c.name,
	}
}

func (g *Graph) know(c *claim, ref metav1.OwnerReference) Claim {
	known, owner := Claim{Reference: ref}, c.owner
	if owner.orphans() { // takes leave of whoever names its UID (G-66)
		known.Known = Orphaning
		known.Doubted = owner.kind.silent && owner.isAt(c.coordinates(ref.UID))
		return known
	}
	at := c.coordinates(ref.UID)
	if learnt, ok := g.disproof(owner.id, at); ok {
		known.Known, known.GoneAt = Disproved, learnt
		known.Doubted = g.doubts(at.Kind.GroupKind(), learnt)
		if owner.flags.has(seen) {
			known.OwnerNamespace = owner.namespace.Value()
		}
		return known
	}
	if owner.kind == nil {
		return known
	}
	if !owner.isAt(at) {
		if owner.flags.has(seen) {
			known.Known, known.OwnerNamespace = Elsewhere, owner.namespace.Value()
		}
		return known
	}
	known.ByVersion = owner.version.Value()
	switch {
	case owner.flags.has(gone):
		known.Known, known.GoneAt = Gone, g.gone[owner.id]
		known.Doubted = g.doubts(owner.kind.GroupKind, known.GoneAt)
	case owner.waits():
		known.Known = Foreground
	case owner.flags.has(seen):
		known.Known = Standing
	}
	return known
}

func (g *Graph) disproof(id ID, at Coordinates) (time.Time, bool) {
	for _, p := range g.proofs[id] {
		if p.covers(at) {
			return p.at, true
		}
	}
	return time.Time{}, false
}

// covers reports whether a proof is about the claimed coordinates: the same
// ones, or those of a cluster-scoped type, which have no namespace (G-32).
func (p proof) covers(at Coordinates) bool {
	if p.claim.Namespace == "" {
		at.Namespace = ""
	}
	return p.claim == at
}

// Needs calls yield for every seen object that may ask for something, in no
// order, until yield returns false. It is what a sweep goes through, and what
// a new leader begins with.
func (g *Graph) Needs(yield func(ID) bool) {
	for _, k := range g.kinds {
		for _, n := range k.nodes {
			if needs(n) && !yield(n.id) {
				return
			}
		}
	}
}

// OfKind calls yield for every seen object of a kind, in no order, and with whether
// it has our own finalizer, until yield returns false.
func (g *Graph) OfKind(gk schema.GroupKind, yield func(id ID, isHeld bool) bool) {
	k, ok := g.kinds[gk]
	if !ok {
		return
	}
	for _, n := range k.nodes {
		if !yield(n.id, n.flags.has(held)) {
			return
		}
	}
}

// Holds calls yield for every seen object that has our own finalizer, in no order,
// until yield returns false.
func (g *Graph) Holds(yield func(ID) bool) {
	for _, k := range g.kinds {
		for _, n := range k.nodes {
			if n.flags.has(held) && !yield(n.id) {
				return
			}
		}
	}
}

// needs reports whether an object, as it is, may ask for something. It errs on
// the side of yes: what is really to be done is decided from a View.
func needs(n *node) bool {
	if !n.flags.has(seen) {
		return false
	}
	switch {
	case n.flags.has(terminating) && n.flags&(foreground|orphan|held) != 0:
		return true
	case n.flags.has(remembered) && !n.flags.has(terminating): // perhaps for no reason any more
		return true
	case len(n.claims) > ManyOwners: // to go through them takes longer here than where it is looked at
		return true
	}
	for i := range n.claims {
		c := &n.claims[i]
		if c.owner.orphans() || !n.flags.has(terminating) && !c.settled() {
			return true
		}
	}
	return false
}

// settled reports whether the claimed owner is seen where it is claimed, by
// the version it is claimed by, and stays.
func (c *claim) settled() bool {
	owner := c.owner
	if !owner.flags.has(seen) || owner.waits() {
		return false
	}
	at := c.coordinates("")
	return at.Kind.Version == owner.version.Value() && owner.isAt(at)
}
