package restore

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// A Collection is what is archived of objects: of each, by UID, the newest entry. The zero
// Collection is empty. It keeps one header for each object in memory.
type Collection struct {
	newest map[types.UID]archive.Header
}

// Add adds the header of an entry, in any order.
func (c *Collection) Add(h archive.Header) {
	if c.newest == nil {
		c.newest = map[types.UID]archive.Header{}
	}
	if known, ok := c.newest[h.Object.UID]; !ok || compareAge(h, known) > 0 {
		c.newest[h.Object.UID] = h
	}
}

func compareAge(a, b archive.Header) int {
	return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.ID, b.ID))
}

// Len returns the number of objects.
func (c *Collection) Len() int { return len(c.newest) }

// All returns the newest entry of each object, from the newest to the oldest.
func (c *Collection) All() []archive.Header {
	all := make([]archive.Header, 0, len(c.newest))
	for _, h := range c.newest {
		all = append(all, h)
	}
	return sorted(all)
}

func sorted(headers []archive.Header) []archive.Header {
	slices.SortFunc(headers, func(a, b archive.Header) int { return compareAge(b, a) })
	return headers
}

// Cascade returns the entries of the objects with the given UIDs, of everything whose owners lead to
// them, and of everything that was deleted in a cascade which began with one of them,
// from the newest to the oldest. An object with an owner outside of it is included.
func (c *Collection) Cascade(roots ...types.UID) []archive.Header {
	below := map[types.UID][]types.UID{}
	for uid, h := range c.newest {
		for _, owner := range h.Owners {
			below[owner.UID] = append(below[owner.UID], uid)
		}
		if root := h.Cause.Root; root != "" && slices.Contains(roots, root) {
			below[root] = append(below[root], uid)
		}
	}
	reached := map[types.UID]struct{}{}
	for next := slices.Clone(roots); len(next) > 0; {
		uid := next[len(next)-1]
		next = next[:len(next)-1]
		if _, again := reached[uid]; again {
			continue
		}
		reached[uid] = struct{}{}
		next = append(next, below[uid]...)
	}
	var found []archive.Header
	for uid := range reached {
		if h, ok := c.newest[uid]; ok {
			found = append(found, h)
		}
	}
	return sorted(found)
}

// InNamespace returns the UIDs of the objects of a namespace that were archived at or after the time
// at which its deletion began.
func (c *Collection) InNamespace(namespace string, since time.Time) (uids []types.UID) {
	for uid, h := range c.newest {
		if h.Object.Namespace == namespace && !h.Time.Before(since) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}
