package catalog

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Settings are the inputs of Build other than discovery.
type Settings struct {
	// Ignored are the resources not to collect, in any version.
	Ignored map[schema.GroupResource]struct{}

	// Local are the group versions that kube-apiserver serves itself.
	Local map[schema.GroupVersion]bool

	// Failed are the group versions for which discovery failed.
	Failed map[schema.GroupVersion]error

	// Previous is the previous catalog. Its types of failed group versions become stale.
	Previous *Catalog
}

// DefaultIgnored returns the resources that are not collected by default: events, of both
// groups (G-10).
func DefaultIgnored() map[schema.GroupResource]struct{} {
	return map[schema.GroupResource]struct{}{
		{Resource: "events"}:                         {},
		{Group: "events.k8s.io", Resource: "events"}: {},
	}
}

// Build returns a catalog of the discovered types. It omits subresources, and lists whose
// group version cannot be parsed (G-02).
func Build(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, settings Settings) *Catalog {
	b := builder{
		settings: settings,
		catalog: &Catalog{
			served:        map[schema.GroupVersionResource]struct{}{},
			kinds:         map[schema.GroupVersionKind]Resource{},
			preferred:     map[schema.GroupKind]Resource{},
			failedGroups:  map[string]struct{}{},
			knownVersions: map[schema.GroupVersion]struct{}{},
		},
		listed: map[schema.GroupResource]struct{}{},
	}
	for gv := range settings.Failed {
		b.catalog.failedGroups[gv.Group] = struct{}{}
	}
	byVersion := map[schema.GroupVersion][]Resource{}
	for _, list := range lists {
		gv, ok := versionOf(list)
		if !ok {
			continue
		}
		byVersion[gv] = append(byVersion[gv], b.resources(gv, list)...)
		if len(list.APIResources) != 0 {
			b.catalog.knownVersions[gv] = struct{}{}
		}
	}
	for _, gv := range sortVersions(groups, byVersion) {
		b.add(byVersion[gv])
	}
	b.addStale()
	b.addUnknown()
	slices.SortFunc(b.catalog.collected, Resource.Compare)
	return b.catalog
}

type builder struct {
	settings Settings
	catalog  *Catalog
	listed   map[schema.GroupResource]struct{} // in any version so far
}

// versionOf returns the group version of a list. It returns false if it is invalid or
// empty.
func versionOf(list *metav1.APIResourceList) (schema.GroupVersion, bool) {
	if list == nil {
		return schema.GroupVersion{}, false
	}
	gv, err := schema.ParseGroupVersion(list.GroupVersion)
	return gv, err == nil && gv.Version != ""
}

// resources converts one list. If two of its resources have the same kind, the kind maps
// to the one that can be collected, otherwise to the first by name.
func (b *builder) resources(gv schema.GroupVersion, list *metav1.APIResourceList) []Resource {
	var found []Resource
	readable, subresources := map[string]int{}, map[string]bool{}
	for i := range list.APIResources {
		subresources[list.APIResources[i].Name] = true
	}
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
			Collected:  !ignored && Collectable(r.Verbs),
			HasStatus:  subresources[r.Name+"/status"],
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

// Collectable reports whether objects of a type with these verbs can be collected.
func Collectable(verbs metav1.Verbs) bool {
	return slices.Contains(verbs, "delete") && slices.Contains(verbs, "list") && slices.Contains(verbs, "watch")
}

// add adds the resources of one version. Versions are added in order of preference, so the
// first one that serves a kind or resource wins.
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

// addStale adds the previous types of failed group versions that no other version of
// their group serves now.
func (b *builder) addStale() {
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

// addUnknown determines the failed group versions whose types were never discovered.
func (b *builder) addUnknown() {
	for gv := range b.settings.Failed {
		if _, named := b.catalog.knownVersions[gv]; named {
			continue
		}
		if previous := b.settings.Previous; previous != nil {
			if _, named := previous.knownVersions[gv]; named {
				b.catalog.knownVersions[gv] = struct{}{}
				continue
			}
		}
		b.catalog.unknownVersions = append(b.catalog.unknownVersions, gv)
	}
	slices.SortFunc(b.catalog.unknownVersions, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
}

// sortVersions returns all group versions with resources: by group, with the preferred version
// first. The lists of discovery are in no particular order.
func sortVersions(groups []*metav1.APIGroup, byVersion map[schema.GroupVersion][]Resource) []schema.GroupVersion {
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
