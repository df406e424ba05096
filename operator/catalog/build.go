package catalog

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Settings are what Build needs to know beside discovery's answer.
type Settings struct {
	// Ignored are the resources not to collect, whatever the version.
	Ignored map[schema.GroupResource]struct{}

	// Local are the group versions that kube-apiserver serves itself.
	Local map[schema.GroupVersion]bool

	// Failed are the group versions that discovery could not ask about.
	Failed map[schema.GroupVersion]error

	// Previous is the catalog before this one. What it had of the failed group
	// versions goes on as stale.
	Previous *Catalog
}

// DefaultIgnored returns the resources that are not collected unless
// configured otherwise: events, by both names they are served under (G-10).
func DefaultIgnored() map[schema.GroupResource]struct{} {
	return map[schema.GroupResource]struct{}{
		{Resource: "events"}:                         {},
		{Group: "events.k8s.io", Resource: "events"}: {},
	}
}

// Build makes a catalog of discovery's answer. Subresources, and lists whose
// group/version can't be parsed, are left out (G-02).
func Build(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, settings Settings) *Catalog {
	b := builder{
		settings: settings,
		catalog: &Catalog{
			served:    map[schema.GroupVersionResource]struct{}{},
			kinds:     map[schema.GroupVersionKind]Resource{},
			preferred: map[schema.GroupKind]Resource{},
			failing:   map[schema.GroupVersion]bool{},
		},
		listed: map[schema.GroupResource]struct{}{},
	}
	for gv := range settings.Failed {
		b.catalog.failing[gv] = !settings.Previous.discovered(gv)
	}
	byVersion := map[schema.GroupVersion][]Resource{}
	for _, list := range lists {
		gv, ok := versionOf(list)
		if !ok {
			continue
		}
		byVersion[gv] = append(byVersion[gv], b.resources(gv, list)...)
	}
	for _, gv := range order(groups, byVersion) {
		b.add(byVersion[gv])
	}
	b.keepStale()
	slices.SortFunc(b.catalog.collected, Resource.Compare)
	return b.catalog
}

type builder struct {
	settings Settings
	catalog  *Catalog
	listed   map[schema.GroupResource]struct{} // in any version so far
}

// versionOf returns a list's group and version. A version there must be: the
// empty string parses, too.
func versionOf(list *metav1.APIResourceList) (schema.GroupVersion, bool) {
	if list == nil {
		return schema.GroupVersion{}, false
	}
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	return gv, err == nil && gv.Version != ""
}

// resources reads one list. If two of its resources have the same kind, the
// kind stands for the one that can be collected, else for the first by name.
func (b *builder) resources(gv schema.GroupVersion, list *metav1.APIResourceList) []Resource {
	var found []Resource
	readable := map[string]int{}
	for i := range list.APIResources {
		r := &list.APIResources[i]
		if r.Name == "" || r.Kind == "" || strings.Contains(r.Name, "/") {
			continue
		}
		if slices.Contains(r.Verbs, "get") {
			readable[r.Kind]++
		}
		resource := gv.WithResource(r.Name)
		_, ignored := b.settings.Ignored[resource.GroupResource()]
		found = append(found, Resource{
			Version:    resource,
			Kind:       r.Kind,
			Namespaced: r.Namespaced,
			Local:      b.settings.Local[gv],
			Collected:  !ignored && collectable(r.Verbs),
		})
	}
	for i := range found {
		found[i].Ambiguous = readable[found[i].Kind] > 1
	}
	slices.SortStableFunc(found, func(a, b Resource) int {
		if a.Collected != b.Collected {
			if a.Collected {
				return -1
			}
			return 1
		}
		return a.Compare(b)
	})
	return found
}

func collectable(verbs metav1.Verbs) bool {
	return slices.Contains(verbs, "delete") && slices.Contains(verbs, "list") && slices.Contains(verbs, "watch")
}

// add takes in the resources of one version. Versions come in the order in
// which they are preferred, so the first to serve something wins.
func (b *builder) add(resources []Resource) {
	for _, r := range resources {
		b.catalog.served[r.Version] = struct{}{}
		if _, taken := b.catalog.kinds[r.GroupVersionKind()]; !taken {
			b.catalog.kinds[r.GroupVersionKind()] = r
		}
		_, listed := b.listed[r.Version.GroupResource()]
		b.listed[r.Version.GroupResource()] = struct{}{}
		if _, taken := b.catalog.preferred[r.GroupKind()]; taken {
			continue
		}
		b.catalog.preferred[r.GroupKind()] = r
		if r.Collected && !listed {
			b.catalog.collected = append(b.catalog.collected, r)
		}
	}
}

// keepStale carries over the types of failed group versions that no other
// version of their group serves now.
func (b *builder) keepStale() {
	if b.settings.Previous == nil {
		return
	}
	for gk, r := range b.settings.Previous.preferred {
		if _, failed := b.settings.Failed[r.Version.GroupVersion()]; !failed {
			continue
		}
		if _, served := b.catalog.preferred[gk]; served {
			continue
		}
		r.Stale, r.Local = true, false
		b.catalog.preferred[gk] = r
	}
	for _, r := range b.settings.Previous.collected {
		now := b.catalog.preferred[r.GroupKind()]
		if now.Stale && now.Version == r.Version {
			b.catalog.collected = append(b.catalog.collected, now)
		}
	}
}

// order returns all group versions of which there are resources: group by
// group, the preferred version first. Discovery's lists come in any order.
func order(groups []*metav1.APIGroup, byVersion map[schema.GroupVersion][]Resource) []schema.GroupVersion {
	var versions []schema.GroupVersion
	done := map[schema.GroupVersion]bool{}
	take := func(gv schema.GroupVersion) {
		if _, ok := byVersion[gv]; ok && !done[gv] {
			done[gv] = true
			versions = append(versions, gv)
		}
	}
	for _, group := range groups {
		if group == nil {
			continue
		}
		take(schema.GroupVersion{Group: group.Name, Version: group.PreferredVersion.Version})
		for _, version := range group.Versions {
			take(schema.GroupVersion{Group: group.Name, Version: version.Version})
		}
	}
	var rest []schema.GroupVersion
	for gv := range byVersion {
		if !done[gv] {
			rest = append(rest, gv)
		}
	}
	slices.SortFunc(rest, func(a, b schema.GroupVersion) int { return cmp.Compare(a.String(), b.String()) })
	return append(versions, rest...)
}

// Compare orders resources by group, resource and version.
func (r Resource) Compare(other Resource) int {
	return cmp.Or(
		cmp.Compare(r.Version.Group, other.Version.Group),
		cmp.Compare(r.Version.Resource, other.Version.Resource),
		cmp.Compare(r.Version.Version, other.Version.Version),
	)
}
