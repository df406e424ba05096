package policies

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// InEffect reports whether what the policy decides counts: not in Monitor, and not while
// its module can't be asked and onFault has the next policy asked.
func (p *Policy) InEffect() bool {
	return p.Enforce && (p.Asker != nil || p.Loading || p.OnFault != OnFaultDefault)
}

// Shares reports whether two policies may govern the same object, by their selectors: it
// is false only if no labels are selected by both.
func (p *Policy) Shares(other *Policy) bool {
	return !disjoint(p.Objects, other.Objects) && !disjoint(p.Namespaces, other.Namespaces)
}

// disjoint reports whether no labels are selected by both of two selectors.
func disjoint(a, b labels.Selector) bool {
	if a == nil || b == nil {
		return false
	}
	these, _ := a.Requirements()
	those, _ := b.Requirements()
	for _, x := range these {
		for _, y := range those {
			if x.Key() == y.Key() && (contradicts(x, y) || contradicts(y, x)) {
				return true
			}
		}
	}
	return false
}

// contradicts reports whether no value of a label, nor its absence, meets x, which asks for
// some values or for any, and y.
func contradicts(x, y labels.Requirement) bool {
	switch x.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return !slices.ContainsFunc(x.Values().UnsortedList(), func(value string) bool { return y.Matches(labels.Set{x.Key(): value}) })
	case selection.Exists:
		return y.Operator() == selection.DoesNotExist
	default:
		return false
	}
}
