// Package catalog contains the types that an API server serves, according to one discovery.
//
// It is pure: no client, no clock, no lock. A Catalog is immutable; each discovery
// creates a new one. A nil *Catalog is valid and serves nothing.
//
// Discovery can fail for some groups and succeed for the rest. The types of a failed
// group are then *stale*: it is unknown whether they are served. They do not count as
// served in proofs that an object does not exist (Resource, Serves). They are still used
// for writes, for lists of dependents and for existing watches (Preferred, Collected), so
// that an API server that is down for a minute does not look uninstalled.
package catalog

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a type in one version of its group.
type Resource struct {
	Version    schema.GroupVersionResource
	Kind       string
	Namespaced bool

	// Local is set if kube-apiserver itself serves the type, as it does for custom
	// resources. It is not set for a type of an aggregated API server, or if this is
	// unknown, which is the safe default.
	Local bool

	// Collected is set if objects of the type can be garbage collected: the type can be
	// listed, watched and deleted, and is not ignored.
	Collected bool

	// HasStatus is set if the type has the subresource status.
	HasStatus bool

	// Ambiguous is set if another readable resource of this version has the same kind,
	// which is possible only for aggregated API servers: an object of the kind may be in
	// either resource.
	Ambiguous bool

	// Stale is set if discovery failed for the type's group version, and an earlier
	// discovery returned the type.
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

// Catalog is the set of types that an API server serves. It is immutable, and safe for
// concurrent use.
type Catalog struct {
	served          map[schema.GroupVersionResource]struct{}
	kinds           map[schema.GroupVersionKind]Resource
	preferred       map[schema.GroupKind]Resource    // including stale types
	collected       []Resource                       // including stale types; sorted
	failedGroups    map[string]struct{}              // groups for which discovery of some version failed
	knownVersions   map[schema.GroupVersion]struct{} // discovered now, or before discovery failed
	unknownVersions []schema.GroupVersion            // never discovered; sorted
}

// Resource returns the type with exactly this group, version and kind if it is served now.
func (c *Catalog) Resource(gvk schema.GroupVersionKind) (Resource, bool) {
	if c == nil {
		return Resource{}, false
	}
	r, ok := c.kinds[gvk]
	return r, ok
}

// Preferred returns a kind in the version to use for requests: its group's preferred
// version if that serves the kind, otherwise the first that does (G-01). If none does, and
// discovery failed for the version that last did, it returns that one, marked Stale:
// requests may be tried, but their failure proves nothing.
func (c *Catalog) Preferred(gk schema.GroupKind) (Resource, bool) {
	if c == nil {
		return Resource{}, false
	}
	r, ok := c.preferred[gk]
	return r, ok
}

// Collected returns the types to watch, each in one version, sorted by group and resource.
// It includes stale ones. The caller owns the slice.
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

// IsFailing reports whether discovery failed for some version of a group, so that it may
// have unknown types.
func (c *Catalog) IsFailing(group string) bool {
	if c == nil {
		return true
	}
	_, failing := c.failedGroups[group]
	return failing
}

// UnknownVersions returns the group versions that are served, but whose types were never
// discovered: any of them may have objects. They are sorted, and the caller owns the slice.
func (c *Catalog) UnknownVersions() []schema.GroupVersion {
	if c == nil {
		return nil
	}
	return slices.Clone(c.unknownVersions)
}

// Diff returns the collected types of c that old lacks in the same version, and those of
// old that c lacks. A type that became stale, or is served by another API server, is still
// the same type.
func (c *Catalog) Diff(old *Catalog) (added, removed []Resource) {
	return without(c.Collected(), old.Collected()), without(old.Collected(), c.Collected())
}

// Equal reports whether two catalogs are equal.
func (c *Catalog) Equal(other *Catalog) bool {
	if c == nil || other == nil {
		return c.empty() && other.empty()
	}
	return maps.Equal(c.served, other.served) &&
		maps.Equal(c.kinds, other.kinds) &&
		maps.Equal(c.preferred, other.preferred) &&
		maps.Equal(c.failedGroups, other.failedGroups) &&
		slices.Equal(c.unknownVersions, other.unknownVersions) &&
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
