package noderetention

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

// Images remembers when images of a node were seen and used. The memory of a new one is empty: what was not used before is not
// known to it, so no limit of age applies until it has existed for that long (P-05).
type Images struct {
	since  time.Time
	seen   map[string]usage // by ID
	latest Node
	used   []bool          // by position in latest.Images
	held   map[string]hold // by ID: those that stay for a time
}

type usage struct{ first, last time.Time }

// hold is why an image stays until a time.
type hold struct {
	until time.Time
	why   string
}

// NewImages returns a memory that begins at a time.
func NewImages(since time.Time) *Images {
	return &Images{since: since, seen: map[string]usage{}, held: map[string]hold{}}
}

// Observe notes what a node has. Images that it no longer has are forgotten.
func (m *Images) Observe(n Node, now time.Time) {
	m.latest, m.used = n, n.used()
	ran := n.lastRun()
	seen := make(map[string]usage, len(n.Images))
	for at, i := range n.Images {
		u, known := m.seen[i.ID]
		if !known {
			u.first = now
		}
		if m.used[at] {
			u.last = now
		} else if ran[at].After(u.last) {
			u.last = ran[at]
		}
		seen[i.ID] = u
	}
	m.seen = seen
	maps.DeleteFunc(m.held, func(_ string, h hold) bool { return !now.Before(h.until) })
}

// Hold has an image stay until a time, so that others are removed in its place: its removal has failed, or something keeps it.
func (m *Images) Hold(id string, until time.Time, why string) { m.held[id] = hold{until, why} }

// Release ends all holds.
func (m *Images) Release() { clear(m.held) }

// Seen returns when an image was first seen on the node, and when it was last seen in use; zero if it was not.
func (m *Images) Seen(id string) (first, last time.Time) {
	u := m.seen[id]
	return u.first, u.last
}

// Names returns the names of an image when the node was last observed.
func (m *Images) Names(id string) []string {
	for _, i := range m.latest.Images {
		if i.ID == id {
			return i.Names
		}
	}
	return nil
}

// InUse is the number of images that were in use when the node was last observed.
func (m *Images) InUse() int {
	n := 0
	for _, used := range m.used {
		if used {
			n++
		}
	}
	return n
}

// Plan evaluates policies about the images that were last observed: those that are enforced first, each in the order of their
// names. What one that is enforced removes is gone for the next ones. An image that an enforced policy keeps, by its name or
// because it is too young, stays, whatever others say (P-25). Use is nil if it is not known.
func (m *Images) Plan(policies []Policy, use *retain.Usage, now time.Time) []Result {
	var results []Result
	gone, enforced, names := map[string]bool{}, m.enforcedKeeps(policies), m.names()
	for _, p := range inOrder(policies) {
		if p.Images == nil {
			continue
		}
		candidates := m.candidates(p, enforced, gone, now)
		plan := retain.Evaluate(retain.Input{Candidates: candidates, Usage: use, Now: now, Since: m.since, Rule: retain.Rule{
			MinAge: p.Images.MinAge, MinAgeFrom: retain.ByFirstSeen, MaxUnused: p.Images.MaxAge, Watermarks: p.Images.Usage,
		}})
		result := newResult(p, plan, func(at int) Item {
			c := candidates[at]
			return Item{ID: c.ID, Name: names[c.ID], Size: c.Size, Created: c.FirstSeen}
		})
		if p.Enforce {
			for _, removal := range result.Removals {
				gone[removal.ID] = true
				use = freed(use, removal.Size)
			}
		}
		results = append(results, result)
	}
	return results
}

// inOrder returns policies in the order in which they are evaluated.
func inOrder(policies []Policy) []Policy {
	return slices.SortedFunc(slices.Values(policies), func(a, b Policy) int {
		if a.Enforce != b.Enforce {
			if a.Enforce {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
}

// freed returns the usage after the removal of something.
func freed(use *retain.Usage, size int64) *retain.Usage {
	if use == nil {
		return nil
	}
	return &retain.Usage{Capacity: use.Capacity, Available: min(use.Available+max(size, 0), use.Capacity)}
}

// keeps are what policies that are enforced keep.
type keeps struct {
	byName []string      // by position of the image: a policy that keeps it by its name; "": none
	minAge time.Duration // the longest one
	policy string        // that has it
}

// enforcedKeeps returns what no policy removes.
func (m *Images) enforcedKeeps(policies []Policy) keeps {
	k := keeps{byName: make([]string, len(m.latest.Images))}
	for _, p := range policies {
		if p.Images == nil || !p.Enforce {
			continue
		}
		if p.Images.MinAge > k.minAge {
			k.minAge, k.policy = p.Images.MinAge, p.Name
		}
		for at, i := range m.latest.Images {
			if k.byName[at] == "" && p.Images.keeps(i) {
				k.byName[at] = p.Name
			}
		}
	}
	return k
}

// candidates returns those of a policy.
func (m *Images) candidates(p Policy, enforced keeps, gone map[string]bool, now time.Time) []retain.Candidate {
	unknown := m.latest.isUnknown()
	var list []retain.Candidate
	for at, i := range m.latest.Images {
		if gone[i.ID] {
			continue
		}
		u := m.seen[i.ID]
		c := retain.Candidate{ID: i.ID, Use: retain.Unused, Pinned: i.Pinned, FirstSeen: u.first, LastUsed: u.last, Size: i.Size, Protected: enforced.byName[at]}
		switch {
		case m.used[at]:
			c.Use = retain.Used
		case unknown:
			c.Use = retain.UseUnknown
		}
		switch {
		case now.Before(m.held[i.ID].until):
			c.Protected = m.held[i.ID].why
		case c.Protected != "":
		case !p.Enforce && p.Images.keeps(i):
			c.Protected = p.Name
		case enforced.minAge > p.Images.MinAge && now.Before(u.first.Add(enforced.minAge)):
			c.Protected = enforced.policy
		}
		list = append(list, c)
	}
	return list
}

// keeps reports whether a name of the image matches a pattern.
func (l ImageLimits) keeps(i Image) bool {
	return len(l.Keep) > 0 && slices.ContainsFunc(i.Names, func(name string) bool {
		repository := repositoryOf(name)
		return slices.ContainsFunc(l.Keep, func(pattern string) bool {
			return matches(pattern, name) || repository != "" && matches(pattern, repository)
		})
	})
}

// names returns a name of each image for people: by tag if it has one.
func (m *Images) names() map[string]string {
	names := map[string]string{}
	for _, i := range m.latest.Images {
		names[i.ID] = i.Name()
	}
	return names
}

// Name returns a name of the image for people: the first one, or its ID.
func (i Image) Name() string {
	if len(i.Names) > 0 {
		return i.Names[0]
	}
	return i.ID
}
