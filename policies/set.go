package policies

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Set is the set of policies in force at one moment. It is immutable; a change
// replaces it. Its methods may be called concurrently. A nil Set and the zero Set
// are empty.
type Set struct {
	policies []*Policy

	// byResource has the policies of each resource that a rule lists by name, by hook
	// and in order of precedence. For other resources, others has the policies with
	// a wildcard rule.
	byResource map[hostabi.Hook]map[schema.GroupResource][]*Policy
	wildcard   map[hostabi.Hook][]rankedPolicy
}

// NewSet returns the set of these policies, which must not be changed afterwards.
func NewSet(all []*Policy) *Set {
	s := &Set{
		policies:   slices.Clone(all),
		byResource: map[hostabi.Hook]map[schema.GroupResource][]*Policy{},
		wildcard:   map[hostabi.Hook][]rankedPolicy{},
	}
	for _, hook := range hostabi.Hooks() {
		s.add(hook)
	}
	return s
}

func (s *Set) add(hook hostabi.Hook) {
	s.byResource[hook] = map[schema.GroupResource][]*Policy{}
	for _, p := range s.policies {
		if !p.HasHook(hook) {
			continue
		}
		wide := false
		for _, rule := range p.Rules {
			wide = wide || rule.hasWildcard()
			for _, name := range rule.NamedResources() {
				s.byResource[hook][name] = nil
			}
		}
		if wide {
			s.wildcard[hook] = append(s.wildcard[hook], rankedPolicy{Policy: p})
		}
	}
	slices.SortFunc(s.wildcard[hook], comparePrecedence)
	for name := range s.byResource[hook] {
		s.byResource[hook][name] = s.sorted(hook, name)
	}
}

// sorted returns the policies of one resource in order of precedence.
func (s *Set) sorted(hook hostabi.Hook, resource schema.GroupResource) []*Policy {
	var entries []rankedPolicy
	for _, p := range s.policies {
		if selected, byName := p.selects(resource); selected && p.HasHook(hook) {
			entries = append(entries, rankedPolicy{p, byName})
		}
	}
	slices.SortFunc(entries, comparePrecedence)
	sorted := make([]*Policy, len(entries))
	for i, e := range entries {
		sorted[i] = e.Policy
	}
	return sorted
}

// Candidates yields the policies that select a resource, for objects in a namespace (""
// for cluster-scoped objects), in order of precedence. It does not check their
// selectors and conditions.
func (s *Set) Candidates(hook hostabi.Hook, resource schema.GroupResource, namespace string) iter.Seq[*Policy] {
	return func(yield func(*Policy) bool) {
		if s == nil {
			return
		}
		named, ok := s.byResource[hook][resource]
		for _, p := range named {
			if p.coversNamespace(namespace) && !yield(p) {
				return
			}
		}
		if ok {
			return
		}
		for _, e := range s.wildcard[hook] {
			if selected, _ := e.selects(resource); selected && e.coversNamespace(namespace) && !yield(e.Policy) {
				return
			}
		}
	}
}

// CandidatesOfGroup yields the policies that may select some resource of a group, for objects in
// a namespace, in no order.
func (s *Set) CandidatesOfGroup(hook hostabi.Hook, group, namespace string) iter.Seq[*Policy] {
	return func(yield func(*Policy) bool) {
		for _, p := range s.All() {
			if p.HasHook(hook) && p.SelectsGroup(group) && p.coversNamespace(namespace) && !yield(p) {
				return
			}
		}
	}
}

// coversNamespace reports whether a policy governs objects of a namespace.
func (p *Policy) coversNamespace(namespace string) bool {
	return p.Namespace == "" || p.Namespace == namespace
}

// Has reports whether For yields anything.
func (s *Set) Has(hook hostabi.Hook, resource schema.GroupResource, namespace string) bool {
	for range s.Candidates(hook, resource, namespace) {
		return true
	}
	return false
}

// All returns the policies of the set. They must not be changed.
func (s *Set) All() []*Policy {
	if s == nil {
		return nil
	}
	return s.policies
}

// Overlap says that other policies precede a policy for a resource that its rules
// list by name, or for all others that they select. The others may leave some
// objects to it, by their selectors or by abstaining.
type Overlap struct {
	Hook      hostabi.Hook
	Resource  string // as resource.group; "*" for all others
	Preceding []*Policy
}

// Overlaps returns where other policies precede this one.
func (s *Set) Overlaps(p *Policy) []Overlap {
	var list []Overlap
	for _, hook := range p.Hooks {
		for resource, named := range s.byResource[hook] {
			list = appendOverlap(list, hook, resource.String(), named, p)
		}
		var others []*Policy
		for _, e := range s.wildcard[hook] {
			others = append(others, e.Policy)
		}
		list = appendOverlap(list, hook, Wildcard, others, p)
	}
	return list
}

func appendOverlap(list []Overlap, hook hostabi.Hook, resource string, sorted []*Policy, p *Policy) []Overlap {
	index := slices.Index(sorted, p)
	if index <= 0 {
		return list
	}
	var preceding []*Policy
	for _, other := range sorted[:index] {
		if other.Namespace == "" || p.Namespace == "" || other.Namespace == p.Namespace {
			preceding = append(preceding, other)
		}
	}
	if len(preceding) == 0 {
		return list
	}
	return append(list, Overlap{Hook: hook, Resource: resource, Preceding: preceding})
}
