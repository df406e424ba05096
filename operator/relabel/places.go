package relabel

import (
	"cmp"
	"slices"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/selection"
	"github.com/gleaner-dev/gleaner/operator/selectors"
)

// place is the objects of a resource in a namespace; in all namespaces, and cluster-scoped ones, for
// "".
type place struct {
	resource  catalog.Resource
	namespace string
}

// key identifies a place even if a later discovery says something else about its resource.
type key struct{ group, resource, namespace string }

func (p place) key() key {
	return key{p.resource.Version.Group, p.resource.Version.Resource, p.namespace}
}

// places remembers for which selectors the objects of each place were labeled.
type places map[key]*selection.List

// pending returns the places with selectors for which their objects may not be labeled yet, in
// order. A place without selectors needs nothing.
func (d places) pending(index *selectors.Index, types *catalog.Catalog) []place {
	var found []place
	for _, r := range types.Collected() {
		if !r.Local { // a resourceVersion may not stand for the same labels
			continue
		}
		everywhere := place{r, ""}
		if d.differs(everywhere, index) {
			found = append(found, everywhere)
			continue // which includes its namespaces
		}
		for _, namespace := range d.namespaces(r, index) {
			if p := (place{r, namespace}); r.Namespaced && d.differs(p, index) {
				found = append(found, p)
			}
		}
	}
	return found
}

func (d places) differs(p place, index *selectors.Index) bool {
	return !listOf(p, index).Equal(d[p.key()])
}

// namespaces returns the namespaces whose objects have, or had, selectors of their own.
func (d places) namespaces(r catalog.Resource, index *selectors.Index) []string {
	var names []string
	for name := range index.Namespaces() {
		names = append(names, name)
	}
	for k := range d {
		if k.group == r.Version.Group && k.resource == r.Version.Resource && k.namespace != "" {
			names = append(names, k.namespace)
		}
	}
	slices.SortFunc(names, cmp.Compare)
	return slices.Compact(names)
}

// done records that the objects of a place are labeled for the selectors of an index.
func (d places) done(p place, index *selectors.Index) {
	if p.namespace == "" {
		for _, namespace := range d.namespaces(p.resource, index) {
			d.set(place{p.resource, namespace}, index)
		}
	}
	d.set(p, index)
}

func (d places) set(p place, index *selectors.Index) {
	_, own := index.Namespaces()[p.namespace]
	if list := listOf(p, index); !list.IsEmpty() && (own || p.namespace == "") {
		d[p.key()] = list
	} else {
		delete(d, p.key())
	}
}

func listOf(p place, index *selectors.Index) *selection.List {
	return index.Scope(p.resource.Version.GroupResource(), p.namespace).List()
}
