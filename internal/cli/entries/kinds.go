package entries

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KindMatcher returns whether a kind is the one that a word names. A type that is no longer served is
// recognized by its kind.
func KindMatcher(word string, mapping func(string) (*meta.RESTMapping, error)) (matches func(schema.GroupKind) bool, namespaced bool) {
	if m, err := mapping(word); err == nil {
		gk := m.GroupVersionKind.GroupKind()
		return func(other schema.GroupKind) bool { return other == gk }, m.Scope.Name() == meta.RESTScopeNameNamespace
	}
	name, group, qualified := strings.Cut(strings.ToLower(word), ".")
	return func(other schema.GroupKind) bool {
		kind := strings.ToLower(other.Kind)
		plural, _ := meta.UnsafeGuessKindToResource(other.WithVersion(""))
		return slices.Contains([]string{kind, plural.Resource}, name) && (!qualified || group == other.Group || strings.HasSuffix(group, "."+other.Group))
	}, false
}
