package policies

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Set is the policies in force at one moment. It is immutable, and replaced whole;
// its methods may be called concurrently. A nil Set and the zero Set have none.
type Set struct {
	policies []*Policy

	// named has the policies of each resource that a rule names, by hook and in
	// the order of precedence; others have those of the rules with a "*".
	named  map[hostabi.Hook]map[schema.GroupResource][]*Policy
	others map[hostabi.Hook][]entry
}

// NewSet returns the set of these policies, which are not to be changed any more.
func NewSet(all []*Policy) *Set {
	s := &Set{
		policies: slices.Clone(all),
		named:    map[hostabi.Hook]map[schema.GroupResource][]*Policy{},
		others:   map[hostabi.Hook][]entry{},
	}
	for _, hook := range hostabi.Hooks() {
		s.add(hook)
	}
	return s
}

func (s *Set) add(hook hostabi.Hook) {
	s.named[hook] = map[schema.GroupResource][]*Policy{}
	for _, p := range s.policies {
		if !p.Answers(hook) {
			continue
		}
		wide := false
		for _, rule := range p.Rules {
			wide = wide || rule.wide()
			for _, name := range rule.Names() {
				s.named[hook][name] = nil
			}
		}
		if wide {
			s.others[hook] = append(s.others[hook], entry{Policy: p})
		}
	}
	slices.SortFunc(s.others[hook], before)
	for name := range s.named[hook] {
		s.named[hook][name] = s.of(hook, name)
	}
}

// of sorts the policies of one resource.
func (s *Set) of(hook hostabi.Hook, resource schema.GroupResource) []*Policy {
	var entries []entry
	for _, p := range s.policies {
		if selected, byName := p.selects(resource); selected && p.Answers(hook) {
			entries = append(entries, entry{p, byName})
		}
	}
	slices.SortFunc(entries, before)
	sorted := make([]*Policy, len(entries))
	for i, e := range entries {
		sorted[i] = e.Policy
	}
	return sorted
}

// For yields the policies whose rules select a resource, for objects of one
// namespace ("" for cluster-scoped ones), in the order in which they are to be
// asked. Their selectors and conditions are still to be looked at.
func (s *Set) For(hook hostabi.Hook, resource schema.GroupResource, namespace string) iter.Seq[*Policy] {
	return func(yield func(*Policy) bool) {
		if s == nil {
			return
		}
		named, ok := s.named[hook][resource]
		for _, p := range named {
			if p.reaches(namespace) && !yield(p) {
				return
			}
		}
		if ok {
			return
		}
		for _, e := range s.others[hook] {
			if selected, _ := e.selects(resource); selected && e.reaches(namespace) && !yield(e.Policy) {
				return
			}
		}
	}
}

// reaches reports whether a policy governs objects of a namespace.
func (p *Policy) reaches(namespace string) bool { return p.Namespace == "" || p.Namespace == namespace }

// Has reports whether For yields anything.
func (s *Set) Has(hook hostabi.Hook, resource schema.GroupResource, namespace string) bool {
	for range s.For(hook, resource, namespace) {
		return true
	}
	return false
}

// All returns the policies of the set, which are not to be changed.
func (s *Set) All() []*Policy {
	if s == nil {
		return nil
	}
	return s.policies
}

// Overlap says that a policy comes after others, by name, for some resource that
// its rules name, or for all that they select. The others may leave it some
// objects, by their selectors or by abstaining.
type Overlap struct {
	Hook     hostabi.Hook
	Resource string // in the form of resource.group; "*" for all others
	Before   []*Policy
}

// Overlaps returns where other policies are asked before this one.
func (s *Set) Overlaps(p *Policy) []Overlap {
	var list []Overlap
	for _, hook := range p.Hooks {
		for resource, named := range s.named[hook] {
			list = appendOverlap(list, hook, resource.String(), named, p)
		}
		var others []*Policy
		for _, e := range s.others[hook] {
			others = append(others, e.Policy)
		}
		list = appendOverlap(list, hook, All, others, p)
	}
	return list
}

func appendOverlap(list []Overlap, hook hostabi.Hook, resource string, sorted []*Policy, p *Policy) []Overlap {
	at := slices.Index(sorted, p)
	if at <= 0 {
		return list
	}
	var ahead []*Policy
	for _, other := range sorted[:at] {
		if other.Namespace == "" || p.Namespace == "" || other.Namespace == p.Namespace {
			ahead = append(ahead, other)
		}
	}
	if len(ahead) == 0 {
		return list
	}
	return append(list, Overlap{Hook: hook, Resource: resource, Before: ahead})
}
