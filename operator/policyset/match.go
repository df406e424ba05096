package policyset

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Match is whether selectors match an object.
type Match uint8

// The values of Match. The zero Match is none of an object that was read: unread is not
// unmatched.
const (
	MatchUnknown Match = iota
	Matched
	NotMatched
)

// Labels are those of an object or a namespace. The zero Labels are unknown.
type Labels struct {
	set   labels.Set
	known bool
}

// KnownLabels returns labels that were read; nil means that there are none.
func KnownLabels(set map[string]string) Labels { return Labels{set, true} }

// Selects reports whether the selectors of the policy match an object with these labels. For
// an object without a namespace, those of the namespace are known, and empty. It does
// not look at the object's resource: see Snapshot.ArchivesFor.
func (a *Archive) Selects(object, namespace Labels) Match {
	return both(matchSelector(a.Policy.ObjectSelector, object), matchSelector(a.Policy.NamespaceSelector, namespace))
}

// SelectsSeen is Selects for an object of a resource as a watch has shown it, without its
// labels: the selectors were evaluated when it was seen.
func (s *Snapshot) SelectsSeen(a *Archive, r schema.GroupResource, object graph.Object, namespace Labels) Match {
	seen := Matched
	if selector := a.Policy.ObjectSelector; selector != nil && !selector.Empty() {
		seen = MatchUnknown
		if selects, known := s.Selectors.Scope(r, object.Namespace).Results(object.Selection).Selects(a.Policy); known {
			seen = matchOf(selects)
		}
	}
	return both(seen, matchSelector(a.Policy.NamespaceSelector, namespace))
}

// both returns whether two parts of a selection match together: one that does not is enough.
func both(a, b Match) Match {
	switch {
	case a == NotMatched || b == NotMatched:
		return NotMatched
	case a == Matched && b == Matched:
		return Matched
	default:
		return MatchUnknown
	}
}

// matchSelector reports whether a selector matches; nil matches everything.
func matchSelector(selector labels.Selector, of Labels) Match {
	switch {
	case selector == nil || selector.Empty():
		return Matched
	case !of.known:
		return MatchUnknown
	default:
		return matchOf(selector.Matches(of.set))
	}
}

func matchOf(is bool) Match {
	if is {
		return Matched
	}
	return NotMatched
}
