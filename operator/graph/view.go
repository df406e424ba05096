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

// OwnerState is the state of the owner that a reference claims, according to the graph.
type OwnerState uint8

const (
	Unseen       OwnerState = iota // unknown: it must be read
	Elsewhere                      // its UID is seen, but with other coordinates
	Present                        // seen with the claimed coordinates
	Foreground                     // seen, and being deleted in the foreground
	Orphaning                      // seen, and being deleted with propagation policy Orphan
	Gone                           // its deletion was observed
	ProvenAbsent                   // a live read has proved that it does not exist
)

// String returns the name that tests and records use.
func (k OwnerState) String() string {
	names := [...]string{"unseen", "elsewhere", "standing", "foreground", "orphaning", "gone", "disproved"}
	if int(k) < len(names) {
		return names[k]
	}
	return "invalid"
}

// Claim is one owner reference with the graph's knowledge of the owner.
type Claim struct {
	Reference metav1.OwnerReference
	State     OwnerState

	// OwnerVersion is the version in which the owner was last read, if it is known with
	// the claimed coordinates. The reference may have another version (G-35).
	OwnerVersion string

	// OwnerNamespace is the namespace in which the owner's UID is seen, if Known is
	// Elsewhere or Disproved; "" if the owner is cluster-scoped or not seen.
	OwnerNamespace string

	// GoneAt is when the owner was found to be gone, if Known is Gone or Disproved.
	GoneAt time.Time

	// DeletionVersion is, for an owner that is Gone, the resourceVersion of its deletion, and for one that is Orphaning, a
	// resourceVersion in which it was being deleted; 0 if it is not known, or the types have incomparable ones.
	DeletionVersion uint64

	// Stale is set if that was before the watch of the owner's type was interrupted:
	// the owner should be read again, if possible. It is also set for an owner that is
	// Orphaning until the watch resumes.
	Stale bool
}

// View is a copy of one seen object with its owners and dependents. Later events do not
// change it.
type View struct {
	ID     ID
	Object Object
	Claims []Claim // one for each of Object.Owners, in the same order

	Dependents     int // seen dependents, each counted once
	Blocking       int // blocking references to the object
	DependentKinds []schema.GroupKind

	// Blockers are some of the dependents with blocking references, at most maxBlockers.
	Blockers []Blocker
}

// Blocker is a dependent that blocks the deletion of its owner.
type Blocker struct {
	Object        Coordinates
	Terminating   bool // it is being deleted
	HasFinalizers bool // and has finalizers other than those of garbage collection
}

// maxBlockers is the maximum number of blockers in a View.
const maxBlockers = 3

// Waits reports whether the object is being deleted in the foreground, and Orphans whether
// it is being deleted with propagation policy Orphan.
func (v View) Waits() bool {
	return v.Object.Terminating && v.Object.Foreground && !v.Object.Orphan && !v.Object.Held
}

// Orphans is documented with Waits.
func (v View) Orphans() bool { return v.Object.Terminating && v.Object.Orphan && !v.Object.Held }

// Claim returns the coordinates that a reference of the object claims.
func (v View) Claim(ref metav1.OwnerReference) Coordinates {
	return Coordinates{UID: ref.UID, Kind: kindOf(ref), Namespace: v.Object.Namespace, Name: ref.Name}
}

// Lookup returns the view of an object. It returns false if the object is not seen.
func (g *Graph) Lookup(id ID) (View, bool) {
	n, ok := g.nodes[id]
	if !ok || !n.flags.has(seen) {
		return View{}, false
	}
	v := View{ID: id, Object: g.objectOf(n), Blocking: int(n.blocking)}
	v.Object.Selection = g.selectionOf(n)
	for i := range n.claims {
		v.Claims = append(v.Claims, g.claimOf(&n.claims[i], v.Object.Owners[i]))
	}
	for c := n.dependents; c != nil; c = c.next {
		if c.first() {
			v.Dependents++
		}
		if c.blocks() && len(v.Blockers) < maxBlockers && n.waits() {
			v.Blockers = append(v.Blockers, g.blockerOf(c.dependent))
		}
	}
	for gk := range n.kind.dependents {
		v.DependentKinds = append(v.DependentKinds, gk)
	}
	return v, true
}

// KindCount is the number of objects of a kind.
type KindCount struct {
	Kind  schema.GroupKind
	Count int
}

// DependentsByKind returns the number of an object's dependents by kind, sorted. Each dependent is
// counted once. Objects that can't have the object as their owner, since it is in another namespace, are not counted
// (G-33, G-34).
func (g *Graph) DependentsByKind(id ID) []KindCount {
	n, ok := g.nodes[id]
	if !ok {
		return nil
	}
	counts := map[schema.GroupKind]int{}
	for c := n.dependents; c != nil; c = c.next {
		if c.first() && c.dependent.kind != nil && n.mayOwn(c.dependent) {
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

// mayOwn reports whether a node may be an owner of another one, as far as their namespaces say.
func (n *node) mayOwn(dependent *node) bool {
	return n.namespace.Value() == "" || n.namespace == dependent.namespace
}

// Blockers returns some of an object's dependents of kinds for which matches returns true, at most
// maxBlockers, and how many there are. Each dependent is counted once.
func (g *Graph) Blockers(id ID, matches func(schema.GroupKind) bool) (some []Blocker, count int) {
	n, ok := g.nodes[id]
	if !ok {
		return nil, 0
	}
	for c := n.dependents; c != nil; c = c.next {
		if !c.first() || c.dependent.kind == nil || !n.mayOwn(c.dependent) || !matches(c.dependent.kind.GroupKind) {
			continue
		}
		if count++; len(some) < maxBlockers {
			some = append(some, g.blockerOf(c.dependent))
		}
	}
	return some, count
}

func (g *Graph) blockerOf(n *node) Blocker {
	return Blocker{
		Object: Coordinates{
			UID: g.uidOf(n.id), Kind: n.kind.WithVersion(n.version.Value()), Namespace: n.namespace.Value(), Name: n.name,
		},
		Terminating:   n.flags.has(terminating),
		HasFinalizers: n.flags.has(terminating) && n.flags&(otherFinalizers|held) != 0,
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
		HasState:        n.flags.has(hasState),
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

// sameClaims reports whether refs are equal to claims, in the same order.
func sameClaims(claims []claim, refs []metav1.OwnerReference) bool {
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

// kindOf parses a reference's apiVersion. An invalid one becomes the version of the core
// group, which no API server serves.
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

func (g *Graph) claimOf(c *claim, ref metav1.OwnerReference) Claim {
	known, owner := Claim{Reference: ref}, c.owner
	if owner.orphans() { // orphans all dependents that reference its UID (G-66)
		known.State, known.DeletionVersion = Orphaning, owner.deletionVersion()
		known.Stale = owner.kind.interruptedNow && owner.hasCoordinates(c.coordinates(ref.UID))
		return known
	}
	at := c.coordinates(ref.UID)
	if since, ok := g.proofs.find(owner.id, at); ok {
		known.State, known.GoneAt = ProvenAbsent, since
		known.Stale = g.isStale(at.Kind.GroupKind(), since)
		if owner.flags.has(seen) {
			known.OwnerNamespace = owner.namespace.Value()
		}
		return known
	}
	if owner.kind == nil {
		return known
	}
	if !owner.hasCoordinates(at) {
		if owner.flags.has(seen) {
			known.State, known.OwnerNamespace = Elsewhere, owner.namespace.Value()
		}
		return known
	}
	known.OwnerVersion = owner.version.Value()
	switch {
	case owner.flags.has(gone):
		known.State, known.GoneAt, known.DeletionVersion = Gone, g.gone[owner.id], owner.deletionVersion()
		known.Stale = g.isStale(owner.kind.GroupKind, known.GoneAt)
	case owner.waits():
		known.State = Foreground
	case owner.flags.has(seen):
		known.State = Present
	}
	return known
}

// deletionVersion returns the resourceVersion of a node; 0 if those of its type are incomparable.
func (n *node) deletionVersion() uint64 {
	if n.kind == nil || n.kind.incomparable {
		return 0
	}
	return n.resourceVersion
}

// NeedingWork calls yield for every seen object that may need work, in no order, until yield
// returns false. Resyncs and new leaders use it.
func (g *Graph) NeedingWork(yield func(ID) bool) {
	for _, k := range g.kinds {
		for _, n := range k.nodes {
			if needsWork(n) && !yield(n.id) {
				return
			}
		}
	}
}

// OfKind calls yield for every seen object of a kind, with whether it has a hold, in no
// order, until yield returns false.
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

// Held calls yield for every seen object that has a hold, in no order, until yield
// returns false.
func (g *Graph) Held(yield func(ID) bool) {
	for _, k := range g.kinds {
		for _, n := range k.nodes {
			if n.flags.has(held) && !yield(n.id) {
				return
			}
		}
	}
}

// needsWork reports whether an object may need work. False positives are possible: the
// decision is made from a View.
func needsWork(n *node) bool {
	if !n.flags.has(seen) {
		return false
	}
	switch {
	case n.flags.has(terminating) && n.flags&(foreground|orphan|held) != 0:
		return true
	case n.flags.has(hasState) && !n.flags.has(terminating): // the state annotation may be obsolete
		return true
	case len(n.claims) > ManyOwners: // checking them here would take too long under the lock
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

// settled reports whether the claimed owner is seen with the claimed coordinates and
// version, and is not being deleted in the foreground.
func (c *claim) settled() bool {
	owner := c.owner
	if !owner.flags.has(seen) || owner.waits() {
		return false
	}
	at := c.coordinates("")
	return at.Kind.Version == owner.version.Value() && owner.hasCoordinates(at)
}
