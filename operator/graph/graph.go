// Package graph knows which object owns which, as far as the cluster has told.
//
// It is pure: no clock, no client, no logger, no lock. Events go in through
// Apply, which answers with the objects that may now need attention; what is
// to be done about an object is read from it with Look. It never decides
// anything, and it never takes silence for absence.
//
// A node is an object. It is *seen* when a watch or a read has shown it,
// *gone* when its deletion was watched, and otherwise only *named*: known
// because a dependent's owner reference names its UID. An edge keeps the
// coordinates that the dependent claims, so that one bad reference says
// nothing about another dependent's good one (defect 3.1).
//
// Invariants, checked by Check:
//
//  1. D is among the dependents of X exactly as often as D claims X's UID (G-21).
//  2. A node that is not seen has a dependent, or it is not in the graph.
//  3. A node that is not seen claims no owners.
//  4. The blocking count of X is the number of claims on it that block.
package graph

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Graph is the owner graph. The zero value is not usable; call New. It is not
// safe for concurrent use: whoever shares one guards it.
type Graph struct {
	nodes map[ID]*node
	kinds map[schema.GroupKind]*kind

	// What only few nodes have is kept beside them, so that a node stays small.
	oddUIDs     map[ID]types.UID // UIDs that are no UUID
	oddVersions map[ID]string    // resourceVersions that are no number
	gone        map[ID]time.Time // when a gone node's deletion was learnt
	proofs      map[ID][]proof   // claims on a node disproved by a live read

	edges int
	twins int
	pairs map[Twins]struct{}
}

// kind is one type of object: a group and a kind, whatever the version.
type kind struct {
	schema.GroupKind
	nodes []*node // the seen ones, in no order; node.place is the index

	// watermark is the newest resourceVersion that the type's watch has
	// delivered; 0 when there is none that is a number.
	watermark uint64

	incomparable bool // its resourceVersions say nothing of what is newer
	restoring    bool // a list is coming in that is older than the watermark

	// listing is the resourceVersion of the list that is coming in; 0: there is none. It
	// has every object as it was then.
	listing uint64

	interrupted time.Time // when its watch last ended; zero: not yet
	silent      bool      // nothing has come of it since

	// dependents are the kinds of which any object ever named an owner of this
	// kind: where a new dependent can be expected.
	dependents map[schema.GroupKind]struct{}
}

// node is one object. At a hundred thousand objects every word counts, so it
// has no maps, and what can be shared is interned.
type node struct {
	id              ID
	name            string
	namespace       unique.Handle[string]
	version         unique.Handle[string] // that it was last read by
	kind            *kind                 // nil while only named
	resourceVersion uint64                // 0 when it is no number: see oddVersions
	claims          []claim
	dependents      *claim // head of the list of claims on this node
	place           uint32 // in kind.nodes, while seen
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
	remembered
	truncated
)

// private are the flags that are nobody's business but the object's own.
const private = otherFinalizers | remembered | truncated

func (f flags) has(bits flags) bool { return f&bits == bits }

// waits reports whether the object is being deleted in the foreground, and
// orphans whether it is being deleted and leaves its dependents behind. The
// orphan finalizer is looked at first, as Kubernetes does (G-23). While the object
// has a hold it does neither: what becomes of its dependents is still to be
// decided.
func (n *node) waits() bool {
	return n.flags.has(seen|terminating|foreground) && n.flags&(orphan|held) == 0
}
func (n *node) orphans() bool {
	return n.flags.has(seen|terminating|orphan) && !n.flags.has(held)
}

// claim is one owner reference, linked into the list of claims on the owner.
// Claims live in their dependent's slice, which is replaced whole and never
// grown, so pointers to them stay good.
type claim struct {
	dependent, owner *node
	next, prev       *claim
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

// ManyOwners is how many owner references an object has at most that is worked on like
// all others. Hardly any object has more than three.
const ManyOwners = 64

// MaxOwners is how many owner references are kept of an object at most. An object can
// have some 80,000, which take a hundred times the memory here that they take in etcd.
// One that has more is Truncated, and so it is never without owners.
const MaxOwners = 10_000

func (c *claim) blocks() bool { return c.flags&blockTrue != 0 }

type proof struct {
	claim Coordinates
	at    time.Time
}

// Twins are two kinds under which one object was seen (defect 3.30). The first
// keeps its node.
type Twins struct{ First, Second schema.GroupKind }

// Twins returns the pairs of kinds that show the same objects, sorted.
func (g *Graph) Twins() []Twins {
	return slices.SortedFunc(maps.Keys(g.pairs), func(a, b Twins) int {
		return cmp.Or(cmp.Compare(a.First.String(), b.First.String()), cmp.Compare(a.Second.String(), b.Second.String()))
	})
}

// New returns an empty graph.
func New() *Graph {
	return &Graph{
		nodes:       map[ID]*node{},
		kinds:       map[schema.GroupKind]*kind{},
		oddUIDs:     map[ID]types.UID{},
		oddVersions: map[ID]string{},
		gone:        map[ID]time.Time{},
		proofs:      map[ID][]proof{},
		pairs:       map[Twins]struct{}{},
	}
}

// Stats are sizes of the graph.
type Stats struct {
	Seen  int // objects that a watch has shown
	Named int // owners known from references only
	Gone  int // owners whose deletion was watched, while dependents are left
	Edges int // owner references
	Twins int // events on a UID already seen under another kind (defect 3.30)
}

// Stats returns the graph's sizes, at the cost of adding up its types.
func (g *Graph) Stats() Stats {
	s := Stats{Gone: len(g.gone), Edges: g.edges, Twins: g.twins}
	for _, k := range g.kinds {
		s.Seen += len(k.nodes)
	}
	s.Named = len(g.nodes) - s.Seen - s.Gone
	return s
}

// Has reports whether the graph has a node of this UID, seen or not (G-78).
func (g *Graph) Has(uid types.UID) bool {
	_, ok := g.nodes[IDOf(uid)]
	return ok
}

// Sees reports whether an object is seen.
func (g *Graph) Sees(id ID) bool {
	n, ok := g.nodes[id]
	return ok && n.flags.has(seen)
}

// NamespaceOf returns the namespace of a seen object; "" for a cluster-scoped
// one, and for one that is not seen.
func (g *Graph) NamespaceOf(id ID) string {
	n, ok := g.nodes[id]
	if !ok || !n.flags.has(seen) {
		return ""
	}
	return n.namespace.Value()
}

// HeldTerminating reports whether a seen object is being deleted, and has our own
// finalizer.
func (g *Graph) HeldTerminating(id ID) bool {
	n, ok := g.nodes[id]
	return ok && n.flags.has(seen|terminating|held)
}

// Owners returns how many owner references are kept of an object.
func (g *Graph) Owners(id ID) int {
	n, ok := g.nodes[id]
	if !ok {
		return 0
	}
	return len(n.claims)
}

// PlaceOf returns the kind and the namespace of a seen object.
func (g *Graph) PlaceOf(id ID) (gk schema.GroupKind, namespace string) {
	n, ok := g.nodes[id]
	if !ok || !n.flags.has(seen) {
		return gk, ""
	}
	return n.kind.GroupKind, n.namespace.Value()
}

// Dependents returns the objects that name an object as their owner, each once, in
// no order.
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

func (g *Graph) uidOf(id ID) types.UID {
	if uid, odd := g.oddUIDs[id]; odd {
		return uid
	}
	return types.UID(id.String())
}

func (g *Graph) versionOf(n *node) string {
	if v, odd := g.oddVersions[n.id]; odd {
		return v
	}
	if n.resourceVersion == 0 {
		return ""
	}
	return strconv.FormatUint(n.resourceVersion, 10)
}

// number returns a resourceVersion's number; ok is false for one that cannot
// be compared. Numbers of one resource are comparable since Kubernetes 1.35.
func number(resourceVersion string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	return n, err == nil && n != 0 && strconv.FormatUint(n, 10) == resourceVersion
}

func (g *Graph) kindOf(gk schema.GroupKind) *kind {
	k, ok := g.kinds[gk]
	if !ok {
		k = &kind{GroupKind: gk}
		g.kinds[gk] = k
	}
	return k
}

// ensure returns the node of a UID, made as a named one if there is none.
func (g *Graph) ensure(uid types.UID) *node {
	id := IDOf(uid)
	n, ok := g.nodes[id]
	if !ok {
		n = &node{id: id}
		g.nodes[id] = n
		if !id.Canonical() {
			g.oddUIDs[id] = uid
		}
	}
	return n
}

// drop removes a node that is neither seen nor named by anybody.
func (g *Graph) drop(n *node) {
	if n.flags.has(seen) || n.dependents != nil {
		return
	}
	delete(g.nodes, n.id)
	delete(g.oddUIDs, n.id)
	delete(g.gone, n.id)
	delete(g.proofs, n.id)
}
