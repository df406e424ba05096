package graph

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is one type of object: a group and a kind in any version.
type kind struct {
	schema.GroupKind
	nodes []*node // seen nodes, in no order; node.index is the index

	// watermark is the newest resourceVersion that the type's watch has delivered; 0 if
	// none is a number.
	watermark uint64

	incomparable bool // its resourceVersions cannot be compared
	restoring    bool // a list that is older than the watermark is in progress

	// listing is the resourceVersion of the list in progress; 0 if there is none. The
	// list has every object in its state at that resourceVersion.
	listing uint64

	// streaming is set while the first list of the type is received, whose objects are in no
	// order of resourceVersions. Until it is complete there is no watermark, only the newest
	// resourceVersion received.
	streaming bool
	streamed  uint64

	interrupted    time.Time // when its watch last ended; zero if never
	interruptedNow bool      // no event has been received since

	// dependents are the kinds of objects that ever referenced an owner of this kind:
	// kinds that new dependents may have.
	dependents map[schema.GroupKind]struct{}
}

// kindTable is what is known of each type, rather than of its objects: how far its watch has
// come, and under which other type it is served.
type kindTable struct {
	kinds            map[schema.GroupKind]*kind
	equivalentEvents int
	equivalentKinds  map[EquivalentKinds]struct{}
}

// EquivalentKinds are two kinds under which one object was seen (defect 3.30). The node has the
// first kind.
type EquivalentKinds struct{ First, Second schema.GroupKind }

// EquivalentKinds returns the pairs of kinds that serve the same objects, sorted.
func (t *kindTable) EquivalentKinds() []EquivalentKinds {
	return slices.SortedFunc(maps.Keys(t.equivalentKinds), func(a, b EquivalentKinds) int {
		return cmp.Or(cmp.Compare(a.First.String(), b.First.String()), cmp.Compare(a.Second.String(), b.Second.String()))
	})
}

func (t *kindTable) kindOf(gk schema.GroupKind) *kind {
	k, ok := t.kinds[gk]
	if !ok {
		k = &kind{GroupKind: gk}
		t.kinds[gk] = k
	}
	return k
}

// parseVersion parses a resourceVersion; ok is false if it cannot be compared. Numbers of one
// resource are comparable since Kubernetes 1.35.
func parseVersion(resourceVersion string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	return n, err == nil && n != 0 && strconv.FormatUint(n, 10) == resourceVersion
}

// advanceWatermark raises a type's watermark. A list may be older than what the previous watch
// delivered. Then the watermark stays, since a Read below it is not newer.
func (t *kindTable) advanceWatermark(gk schema.GroupKind, resourceVersion string) {
	k := t.kindOf(gk)
	k.interruptedNow = k.interruptedNow && (k.listing != 0 || k.streaming) // a list ends the silence only when it is complete
	v, ok := parseVersion(resourceVersion)
	switch {
	case !ok || k.incomparable:
	case k.streaming:
		k.streamed = max(k.streamed, v)
	default:
		k.watermark = max(k.watermark, v)
	}
}

// isNewer reports whether a Read is newer than everything that the watch of its type has
// delivered. For a type without a watermark it returns false.
func (t *kindTable) isNewer(o Object) bool {
	k, ok := t.kinds[o.Kind.GroupKind()]
	if !ok || k.watermark == 0 {
		return false
	}
	v, ok := parseVersion(o.ResourceVersion)
	return ok && v > k.watermark
}

// recordEquivalent records that an object is served under two kinds.
func (t *kindTable) recordEquivalent(first *kind, second schema.GroupKind) {
	t.equivalentEvents++
	t.equivalentKinds[EquivalentKinds{First: first.GroupKind, Second: second}] = struct{}{}
}

func (t *kindTable) listing(e Listing) {
	k := t.kindOf(e.Kind)
	k.incomparable = e.Incomparable
	if e.Incomparable {
		k.watermark, k.streamed = 0, 0
	}
	if e.Streamed {
		k.streaming = true
		return
	}
	k.endStream() // an attempt to stream the list has failed
	v, ok := parseVersion(e.ResourceVersion)
	if !ok {
		return
	}
	k.listing = v
	if v < k.watermark {
		k.restoring, k.watermark = true, v
	}
}

// endStream ends the first list of a type. The watermark is what it has received.
func (k *kind) endStream() {
	k.watermark = max(k.watermark, k.streamed)
	k.streaming, k.streamed = false, 0
}

func (t *kindTable) interrupted(e Interrupted) {
	k := t.kindOf(e.Kind)
	k.interruptedNow = true
	if e.At.After(k.interrupted) {
		k.interrupted = e.At
	}
}

// isStale reports whether an observation of a type at a time is from before its watch was
// last interrupted.
func (t *kindTable) isStale(gk schema.GroupKind, at time.Time) bool {
	k, ok := t.kinds[gk]
	return ok && !k.interrupted.IsZero() && !at.After(k.interrupted)
}
