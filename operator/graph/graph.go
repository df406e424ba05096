// Package graph implements the owner graph: which object owns which, according to the
// events received so far.
//
// It is pure: no clock, no client, no logger, no lock. Apply applies an event and returns
// the objects that may now need work. Look returns the state of an object. The graph
// decides nothing, and never concludes from a missing event that an object is absent.
//
// A node is an object. It is *seen* when a watch or a read has shown it,
// *gone* when its deletion was observed, and otherwise only *named*: known because a
// dependent's owner reference has its UID. An edge keeps the coordinates that the
// dependent claims, so an invalid reference does not affect another dependent's valid
// one (defect 3.1).
//
// Invariants, checked by Check:
//
//  1. D is among the dependents of X exactly as often as D claims X's UID (G-21).
//  2. A node that is not seen has a dependent, or it is not in the graph.
//  3. A node that is not seen claims no owners.
//  4. The blocking count of X is the number of claims on it that block.
package graph

import (
	"strconv"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Graph is the owner graph. The zero value is not usable; call New. It is not safe for
// concurrent use.
type Graph struct {
	nodes map[ID]*node
	edges int
	kindTable

	// Data that only few nodes have is kept separately, so that a node stays small.
	oddNames
	gone       map[ID]time.Time // when a gone node's deletion was observed
	proofs     proofTable       // claims on a node that a live read has disproved
	selections selectionTable   // of seen nodes, where selectors were evaluated
}

// oddNames are the names of nodes and their versions that a node has no room for.
type oddNames struct {
	nonUUIDs           map[ID]types.UID // UIDs that are not UUIDs
	nonNumericVersions map[ID]string    // resourceVersions that are not numbers
}

// node is one object. There may be hundreds of thousands, so it has no maps, and shared
// strings are interned.
type node struct {
	id              ID
	name            string
	namespace       unique.Handle[string]
	version         unique.Handle[string] // in which it was last read
	kind            *kind                 // nil while only named
	resourceVersion uint64                // 0 if it is not a number: see nonNumericVersions
	claims          []claim
	dependents      *claim // head of the list of claims on this node
	index           uint32 // in kind.nodes, while seen
	blocking        uint32 // claims on this node with blockOwnerDeletion
	flags           flags
}

type flags uint16

const (
	seen flags = 1 << iota
	gone
	terminating
	foreground
	orphan
	otherFinalizers
	held
	hasState
	truncated
)

// ownFlags are the flags that do not affect other objects.
const ownFlags = otherFinalizers | hasState | truncated

func (f flags) has(bits flags) bool { return f&bits == bits }

// waits reports whether the object is being deleted in the foreground, and orphans whether
// it is being deleted with propagation policy Orphan. The orphan finalizer takes
// precedence, as in Kubernetes (G-23). An object with a hold does neither: its propagation
// policy is not decided yet.
func (n *node) waits() bool {
	return n.flags.has(seen|terminating|foreground) && n.flags&(orphan|held) == 0
}
func (n *node) orphans() bool {
	return n.flags.has(seen|terminating|orphan) && !n.flags.has(held)
}

// claim is one owner reference, linked into the list of claims on the owner. Claims are
// stored in their dependent's slice, which is replaced as a whole and never grows, so
// pointers to them stay valid.
type claim struct {
	dependent, owner *node
	next, prev       *claim // prev of the first is the last
	name             string
	kind             unique.Handle[metav1.TypeMeta]
	flags            claimFlags
}

type claimFlags uint8

const (
	controllerSet claimFlags = 1 << iota
	controllerTrue
	blockSet
	blockTrue
	repeated // its dependent has an earlier claim on the same owner

	ofReference = controllerSet | controllerTrue | blockSet | blockTrue
)

// ManyOwners is the number of owner references above which an object is processed
// separately. Few objects have more than three.
const ManyOwners = 64

// MaxOwners is the maximum number of owner references that are kept of an object. An
// object can have some 80,000, which take a hundred times as much memory here as in etcd.
// An object with more is Truncated, and never counts as having no owners.
const MaxOwners = 10_000

func (c *claim) blocks() bool { return c.flags&blockTrue != 0 }

// New returns an empty graph.
func New() *Graph {
	return &Graph{
		nodes:     map[ID]*node{},
		kindTable: kindTable{kinds: map[schema.GroupKind]*kind{}, equivalentKinds: map[EquivalentKinds]struct{}{}},
		oddNames:  oddNames{nonUUIDs: map[ID]types.UID{}, nonNumericVersions: map[ID]string{}},
		gone:      map[ID]time.Time{},
		proofs:    proofTable{},

		selections: selectionTable{},
	}
}

// Stats are sizes of the graph.
type Stats struct {
	Seen             int // objects that a watch has shown
	Named            int // owners known only from references
	Gone             int // owners whose deletion was observed, and that still have dependents
	Edges            int // owner references
	EquivalentEvents int // events for a UID already seen under another kind (defect 3.30)
}

// Stats returns the graph's sizes. It iterates over all types.
func (g *Graph) Stats() Stats {
	s := Stats{Gone: len(g.gone), Edges: g.edges, EquivalentEvents: g.equivalentEvents}
	for _, k := range g.kinds {
		s.Seen += len(k.nodes)
	}
	s.Named = len(g.nodes) - s.Seen - s.Gone
	return s
}

// Has reports whether the graph has a node with this UID, seen or not (G-78).
func (g *Graph) Has(uid types.UID) bool {
	_, ok := g.nodes[IDOf(uid)]
	return ok
}

// IsSeen reports whether an object is seen.
func (g *Graph) IsSeen(id ID) bool {
	n, ok := g.nodes[id]
	return ok && n.flags.has(seen)
}

// NamespaceOf returns the namespace of a seen object, or "" for a cluster-scoped one and
// one that is not seen.
func (g *Graph) NamespaceOf(id ID) string {
	n, ok := g.nodes[id]
	if !ok || !n.flags.has(seen) {
		return ""
	}
	return n.namespace.Value()
}

// IsHeldTerminating reports whether a seen object is being deleted and has a hold.
func (g *Graph) IsHeldTerminating(id ID) bool {
	n, ok := g.nodes[id]
	return ok && n.flags.has(seen|terminating|held)
}

// OwnerCount returns the number of owner references that are kept of an object.
func (g *Graph) OwnerCount(id ID) int {
	n, ok := g.nodes[id]
	if !ok {
		return 0
	}
	return len(n.claims)
}

// LocationOf returns the kind and the namespace of a seen object.
func (g *Graph) LocationOf(id ID) (gk schema.GroupKind, namespace string) {
	n, ok := g.nodes[id]
	if !ok || !n.flags.has(seen) {
		return gk, ""
	}
	return n.kind.GroupKind, n.namespace.Value()
}

// HasDependents reports whether an object has dependents.
func (g *Graph) HasDependents(id ID) bool {
	n, ok := g.nodes[id]
	return ok && n.dependents != nil
}

// AbsentOwner returns a reference of an object to an owner that is gone or proven absent. If the owner exists with another
// name or in another namespace than the reference says, it does not count as absent.
func (g *Graph) AbsentOwner(id ID) (metav1.OwnerReference, bool) {
	n, ok := g.nodes[id]
	if !ok || !n.flags.has(seen) {
		return metav1.OwnerReference{}, false
	}
	for i := range n.claims {
		c := &n.claims[i]
		if c.owner.flags.has(seen) {
			continue
		}
		ref := g.referenceOf(c)
		if state := g.claimOf(c, ref).State; state == Gone || state == ProvenAbsent {
			return ref, true
		}
	}
	return metav1.OwnerReference{}, false
}

// Owners calls yield with each owner that an object refers to until it returns false.
func (g *Graph) Owners(id ID, yield func(ID) bool) {
	n, ok := g.nodes[id]
	if !ok {
		return
	}
	for i := range n.claims {
		if !yield(n.claims[i].owner.id) {
			return
		}
	}
}

// Dependents returns the dependents of an object, each once, those first whose claims were
// applied first.
func (g *Graph) Dependents(id ID) []ID {
	n, ok := g.nodes[id]
	if !ok {
		return nil
	}
	var ids []ID
	for c := n.dependents; c != nil; c = c.next {
		if c.first() {
			ids = append(ids, c.dependent.id)
		}
	}
	return ids
}

func (o *oddNames) uidOf(id ID) types.UID {
	if uid, odd := o.nonUUIDs[id]; odd {
		return uid
	}
	return types.UID(id.String())
}

func (o *oddNames) versionOf(n *node) string {
	if v, odd := o.nonNumericVersions[n.id]; odd {
		return v
	}
	if n.resourceVersion == 0 {
		return ""
	}
	return strconv.FormatUint(n.resourceVersion, 10)
}

// ensure returns the node of a UID, creating a named one if needed.
func (g *Graph) ensure(uid types.UID) *node {
	id := IDOf(uid)
	n, ok := g.nodes[id]
	if !ok {
		n = &node{id: id}
		g.nodes[id] = n
		if !id.Canonical() {
			g.nonUUIDs[id] = uid
		}
	}
	return n
}

// drop removes a node that is neither seen nor referenced.
func (g *Graph) drop(n *node) {
	if n.flags.has(seen) || n.dependents != nil {
		return
	}
	delete(g.nodes, n.id)
	delete(g.nonUUIDs, n.id)
	delete(g.gone, n.id)
	delete(g.proofs, n.id)
}
