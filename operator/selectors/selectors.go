// Package selectors indexes the object selectors of policies by the objects that they are for.
// With that, a watch event tells which policies select its object, and no read is needed for the
// others.
//
// The most important rule: what is not known is read. A Selection counts only for the selectors
// that it was evaluated for.
package selectors

import (
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/selection"
	"github.com/gleaner-dev/gleaner/policies"
)

// Each event costs the evaluation of all selectors for its object, and events of one type are
// processed one after the other. So selectors beyond these limits are not indexed: their
// policies have their objects read.
const (
	// maxSize is the maximum size of a selector's text, in bytes.
	maxSize = 2 << 10

	// maxOfNamespace is the number of selectors that policies of one namespace may have for one
	// resource, and maxOfCluster that of cluster-scoped policies. With more, none of them is
	// indexed.
	maxOfNamespace, maxOfCluster = 100, 1000
)

// Index has the object selectors of the policies of some Sets. Create it with New. A nil Index has
// none. Its methods may be called concurrently.
type Index struct {
	sets       []*policies.Set
	texts      map[*policies.Policy]string // of each policy with an object selector
	namespaces map[string]struct{}         // in which policies have some

	mu     sync.Mutex // covers scopes
	scopes map[place]*Scope
}

type place struct {
	resource  schema.GroupResource
	namespace string
}

// New returns the Index of some Sets.
func New(sets ...*policies.Set) *Index {
	x := &Index{sets: sets, texts: map[*policies.Policy]string{}, namespaces: map[string]struct{}{}, scopes: map[place]*Scope{}}
	for _, set := range sets {
		for _, p := range set.All() {
			x.add(p)
		}
	}
	return x
}

func (x *Index) add(p *policies.Policy) {
	if p.ObjectSelector == nil || p.ObjectSelector.Empty() {
		return
	}
	x.texts[p] = p.ObjectSelector.String()
	if p.Namespace != "" {
		x.namespaces[p.Namespace] = struct{}{}
	}
}

// Namespaces returns the namespaces of policies with an object selector. It must not be changed.
func (x *Index) Namespaces() map[string]struct{} {
	if x == nil {
		return nil
	}
	return x.namespaces
}

// Scope returns the selectors for the objects of a resource in a namespace. Those of all
// namespaces without policies of their own are the same as those for namespace "".
func (x *Index) Scope(resource schema.GroupResource, namespace string) *Scope {
	if x == nil || len(x.texts) == 0 {
		return nil
	}
	if _, own := x.namespaces[namespace]; !own {
		namespace = ""
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	at := place{resource, namespace}
	s, ok := x.scopes[at]
	if !ok {
		s = x.newScope(at)
		x.scopes[at] = s
	}
	return s
}

// candidates yields the policies for the objects of a resource in a namespace, some of them
// several times.
func (x *Index) candidates(at place) iter.Seq[*policies.Policy] {
	return func(yield func(*policies.Policy) bool) {
		for _, set := range x.sets {
			for _, hook := range hostabi.Hooks() {
				for p := range set.Candidates(hook, at.resource, at.namespace) {
					if !yield(p) {
						return
					}
				}
			}
		}
	}
}

func (x *Index) newScope(at place) *Scope {
	cluster, own := map[string]labels.Selector{}, map[string]labels.Selector{}
	var selective []*policies.Policy
	for p := range x.candidates(at) {
		text, ok := x.texts[p]
		if !ok || len(text) > maxSize {
			continue
		}
		selective = append(selective, p)
		if p.Namespace == "" {
			cluster[text] = p.ObjectSelector
		} else {
			own[text] = p.ObjectSelector
		}
	}
	all := map[string]labels.Selector{}
	for _, part := range []struct {
		selectors map[string]labels.Selector
		limit     int
	}{{cluster, maxOfCluster}, {own, maxOfNamespace}} {
		if len(part.selectors) <= part.limit {
			for text, selector := range part.selectors {
				all[text] = selector
			}
		}
	}
	s := &Scope{list: selection.NewList(all), positions: map[*policies.Policy]int{}}
	for _, p := range selective {
		if i, ok := s.list.Position(x.texts[p]); ok {
			s.positions[p] = i
		}
	}
	return s
}

// Scope has the selectors for some objects. It is immutable. A nil Scope has none.
type Scope struct {
	list      *selection.List
	positions map[*policies.Policy]int
}

// List returns the selectors.
func (s *Scope) List() *selection.List {
	if s == nil {
		return nil
	}
	return s.list
}

// Evaluate evaluates the selectors on the labels of an object.
func (s *Scope) Evaluate(set labels.Set) selection.Selection { return s.List().Evaluate(set) }

// Results returns what a Selection says about the policies.
func (s *Scope) Results(of selection.Selection) Results {
	if s == nil {
		return Results{}
	}
	if bits, known := s.list.Results(of); known {
		return Results{positions: s.positions, bits: bits}
	}
	return Results{}
}

// Results says which policies select an object. The zero Results says nothing.
type Results struct {
	positions map[*policies.Policy]int
	bits      selection.Results
}

// Selects reports whether a policy's object selector matches the object, if that is known.
func (r Results) Selects(p *policies.Policy) (selects, known bool) {
	position, ok := r.positions[p]
	return ok && r.bits.Matches(position), ok
}

// Excludes reports whether a policy's object selector is known not to match the object.
func (r Results) Excludes(p *policies.Policy) bool {
	selects, known := r.Selects(p)
	return known && !selects
}
