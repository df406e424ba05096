// Package catalog holds the types that an API server serves at one moment, as
// its discovery tells them.
//
// It is pure: no client, no clock, no lock. A Catalog never changes; each
// discovery makes a new one. A nil *Catalog is valid and serves nothing.
//
// Discovery can fail for some groups and answer for the rest. The types of a
// failed group are then *stale*: nobody knows whether they are served. They
// don't count as served where that helps to prove that an object does not
// exist (Resource, Serves), but they are still there for writes, for lists of
// dependents and for the watches that run already (Preferred, Collected), so
// that an API server which is down for a minute isn't taken for one that was
// uninstalled.
package catalog

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a type as one version of its group serves it.
type Resource struct {
	Version    schema.GroupVersionResource
	Kind       string
	Namespaced bool

	// Local is set if kube-apiserver itself serves the type; custom resources
	// are served so, too. It is not set for an aggregated API server's type,
	// nor where that is not known: the answer that leads to more caution.
	Local bool

	// Collected is set if objects of the type can be owned and collected: the
	// type can be listed, watched and deleted, and is not ignored.
	Collected bool

	// Ambiguous is set if another resource of this version can be read that has the same
	// kind, as only an aggregated API server's can: an object of the kind that is not
	// here may be there.
	Ambiguous bool

	// Stale is set if discovery failed for the type's group and version, and
	// an earlier one served the type.
	Stale bool
}

// GroupVersionKind returns the kind with the version that serves it.
func (r Resource) GroupVersionKind() schema.GroupVersionKind {
	return r.Version.GroupVersion().WithKind(r.Kind)
}

// GroupKind returns the kind without its version.
func (r Resource) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Version.Group, Kind: r.Kind}
}

// Catalog is what an API server serves at one moment. It is immutable, and
// safe for concurrent use.
type Catalog struct {
	served    map[schema.GroupVersionResource]struct{}
	kinds     map[schema.GroupVersionKind]Resource
	preferred map[schema.GroupKind]Resource // with the stale ones
	collected []Resource                    // with the stale ones; sorted

	// failing are the group versions that could not be asked about: true where none of
	// their types is known from before.
	failing map[schema.GroupVersion]bool
}

// Resource returns the type of exactly this group, version and kind if it is
// served now.
func (c *Catalog) Resource(gvk schema.GroupVersionKind) (Resource, bool) {
	if c == nil {
		return Resource{}, false
	}
	r, ok := c.kinds[gvk]
	return r, ok
}

// Preferred returns a kind by the version to use for calls: its group's
// preferred version if that serves the kind, else the first that does (G-01).
// If none does so now and discovery failed for the version that last did, the
// answer is that one, marked Stale: a call may be tried, but nothing follows
// from its failure.
func (c *Catalog) Preferred(gk schema.GroupKind) (Resource, bool) {
	if c == nil {
		return Resource{}, false
	}
	r, ok := c.preferred[gk]
	return r, ok
}

// Collected returns the types to watch, each by one version, sorted by group
// and resource. Stale ones are among them. The caller owns the slice.
func (c *Catalog) Collected() []Resource {
	if c == nil {
		return nil
	}
	return slices.Clone(c.collected)
}

// Serves reports whether exactly this resource is served now.
func (c *Catalog) Serves(resource schema.GroupVersionResource) bool {
	if c == nil {
		return false
	}
	_, ok := c.served[resource]
	return ok
}

// Failing reports whether discovery failed for some version of a group, so that it may
// have types of which nothing is known.
func (c *Catalog) Failing(group string) bool {
	if c == nil {
		return true
	}
	for gv := range c.failing {
		if gv.Group == group {
			return true
		}
	}
	return false
}

// Undiscovered returns the group versions of which discovery has not found out a single
// type, because it has failed for them ever since. They may have types, and those objects.
func (c *Catalog) Undiscovered() []schema.GroupVersion {
	if c == nil {
		return nil
	}
	var list []schema.GroupVersion
	for gv, nothingKnown := range c.failing {
		if nothingKnown {
			list = append(list, gv)
		}
	}
	slices.SortFunc(list, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// discovered reports whether discovery has found out about a group version, now or before.
func (c *Catalog) discovered(gv schema.GroupVersion) bool {
	if c == nil {
		return false
	}
	if nothingKnown, failing := c.failing[gv]; failing {
		return !nothingKnown
	}
	for resource := range c.served {
		if resource.GroupVersion() == gv {
			return true
		}
	}
	return false
}

// Diff returns the collected types that c has and old has not, by the same
// version, and the other way round. A type that went stale, or is served from
// elsewhere now, is still the same type.
func (c *Catalog) Diff(old *Catalog) (added, removed []Resource) {
	return without(c.Collected(), old.Collected()), without(old.Collected(), c.Collected())
}

// Equal reports whether two catalogs answer every question alike.
func (c *Catalog) Equal(other *Catalog) bool {
	if c == nil || other == nil {
		return c.empty() && other.empty()
	}
	return maps.Equal(c.served, other.served) &&
		maps.Equal(c.kinds, other.kinds) &&
		maps.Equal(c.preferred, other.preferred) &&
		maps.Equal(c.failing, other.failing) &&
		slices.Equal(c.collected, other.collected)
}

func (c *Catalog) empty() bool {
	return c == nil || len(c.served) == 0 && len(c.preferred) == 0
}

// without returns the resources that are not in other.
func without(resources, other []Resource) []Resource {
	in := make(map[schema.GroupVersionResource]string, len(other))
	for _, r := range other {
		in[r.Version] = r.Kind
	}
	return slices.DeleteFunc(resources, func(r Resource) bool {
		kind, ok := in[r.Version]
		return ok && kind == r.Kind
	})
}
