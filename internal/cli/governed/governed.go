// Package governed counts the objects that policies and finalizers select, among those that were read.
package governed

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
)

// Count is the number of objects that the rules and selectors of one resource select. The zero value says that none does.
type Count struct {
	Objects int

	// AtMost is set if matchConditions, which need the whole object, may exclude some of them.
	AtMost bool

	// AtLeast is set if some objects that the rules select could not be read, or the labels of their namespaces.
	AtLeast bool
}

// Index has the objects of a survey by resource.
type Index struct {
	objects    map[schema.GroupResource][]survey.Item
	namespaces map[string]labels.Set
	unread     []schema.GroupResource
}

// NewIndex returns the objects of a survey of all namespaces.
func NewIndex(s *survey.Survey) *Index {
	x := &Index{objects: map[schema.GroupResource][]survey.Item{}, namespaces: map[string]labels.Set{}}
	for _, i := range s.Items {
		r := i.Resource.Version.GroupResource()
		x.objects[r] = append(x.objects[r], i)
		if r == (schema.GroupResource{Resource: "namespaces"}) {
			x.namespaces[i.Meta.Name] = i.Meta.Labels
		}
	}
	for _, u := range s.Unread {
		x.unread = append(x.unread, u.Resource)
	}
	return x
}

// selection has the fields of a spec that select objects. They have the same names in all kinds.
type selection struct {
	Resources         []v1alpha1.ResourceRule   `json:"resources"`
	NamespaceSelector *metav1.LabelSelector     `json:"namespaceSelector"`
	ObjectSelector    *metav1.LabelSelector     `json:"objectSelector"`
	MatchConditions   []v1alpha1.MatchCondition `json:"matchConditions"`
}

// Count counts what one of Gleaner's resources selects; false if it selects no objects at all, as a module.
func (x *Index) Count(o *unstructured.Unstructured) (Count, bool, error) {
	var c Count
	spec, _, err := unstructured.NestedMap(o.Object, "spec")
	if err != nil || spec["resources"] == nil {
		return c, false, err
	}
	var s selection
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &s); err != nil {
		return c, false, fmt.Errorf("read spec: %w", err)
	}
	object, err := selectorOf(s.ObjectSelector)
	if err != nil {
		return c, false, fmt.Errorf("read objectSelector: %w", err)
	}
	namespace, err := selectorOf(s.NamespaceSelector)
	if err != nil {
		return c, false, fmt.Errorf("read namespaceSelector: %w", err)
	}
	selects := func(r schema.GroupResource) bool {
		return slices.ContainsFunc(s.Resources, func(rule v1alpha1.ResourceRule) bool {
			selected, _ := policies.Rule{Groups: rule.APIGroups, Resources: rule.Resources}.Selects(r)
			return selected
		})
	}
	c.AtMost = len(s.MatchConditions) != 0
	c.AtLeast = slices.ContainsFunc(x.unread, selects)
	for r, items := range x.objects {
		if !selects(r) {
			continue
		}
		for _, i := range items {
			if o.GetNamespace() != "" && o.GetNamespace() != i.Meta.Namespace || !object.Matches(labels.Set(i.Meta.Labels)) {
				continue
			}
			switch matches, known := x.inNamespace(namespace, i.Meta.Namespace); {
			case !known:
				c.AtLeast = true
			case matches:
				c.Objects++
			}
		}
	}
	return c, true, nil
}

// inNamespace reports whether the labels of a namespace match, if they were read. A selector with requirements matches no cluster-scoped
// object.
func (x *Index) inNamespace(s labels.Selector, namespace string) (matches, known bool) {
	if s.Empty() || namespace == "" {
		return s.Empty(), true
	}
	set, known := x.namespaces[namespace]
	return known && s.Matches(set), known
}

// selectorOf returns a selector; one that is not set matches everything.
func selectorOf(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}
