package policies

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// InEffect reports whether the policy's decisions take effect: not in Monitor, and
// not while its module is unavailable and onFault is Default.
func (p *Policy) InEffect() bool {
	return p.Enforce && (p.Evaluator != nil || p.Loading || p.OnFault != OnFaultDefault)
}

// MayOverlap reports whether two policies may govern the same object according to their
// selectors. It is false only if no labels match both.
func (p *Policy) MayOverlap(other *Policy) bool {
	return !disjoint(p.ObjectSelector, other.ObjectSelector) && !disjoint(p.NamespaceSelector, other.NamespaceSelector)
}

// disjoint reports whether no labels match both selectors.
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

// contradicts reports whether no value of a label, nor its absence, matches both x,
// which requires certain values or any value, and y.
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
