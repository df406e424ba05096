package policies_test

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

var (
	claims      = schema.GroupResource{Resource: "persistentvolumeclaims"}
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
	byName      = []policies.Rule{{Groups: []string{""}, Resources: []string{claims.Resource}}}
	everything  = []policies.Rule{{Groups: []string{"*"}, Resources: []string{"*"}}}
	core        = []policies.Rule{{Groups: []string{""}, Resources: []string{"*"}}}
	some        = labels.SelectorFromSet(labels.Set{"a": "b"})
)

// newPolicy returns a policy with the hook collect and these changes.
func newPolicy(name string, rules []policies.Rule, changes ...func(*policies.Policy)) *policies.Policy {
	p := &policies.Policy{Name: name, Rules: rules, Hooks: []hostabi.Hook{hostabi.HookCollect}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func inNamespace(namespace string) func(*policies.Policy) {
	return func(p *policies.Policy) { p.Namespace = namespace }
}
func priority(n int32) func(*policies.Policy) { return func(p *policies.Policy) { p.Priority = n } }
func overridable(p *policies.Policy)          { p.Overridable = true }
func selecting(p *policies.Policy)            { p.ObjectSelector = some }
func selectingNamespaces(p *policies.Policy)  { p.NamespaceSelector = some }
func propagates(p *policies.Policy)           { p.Hooks = []hostabi.Hook{hostabi.HookPropagate} }

func TestCandidates_AreInOrderOfPrecedence(t *testing.T) {
	for claim, c := range map[string]struct {
		policies  []*policies.Policy
		resource  schema.GroupResource
		namespace string
		want      []string
	}{
		"without policies, there are no candidates": {nil, claims, "shop", nil},
		"cluster-scoped policies precede namespaced ones": {
			[]*policies.Policy{newPolicy("b", byName, inNamespace("shop"), priority(9)), newPolicy("z", byName)}, claims, "shop", []string{"z", "b"}},
		"unless they are overridable": {
			[]*policies.Policy{newPolicy("b", byName, inNamespace("shop")), newPolicy("a", byName, overridable, priority(9)), newPolicy("z", byName)}, claims, "shop",
			[]string{"z", "b", "a"}},
		"a higher priority precedes": {
			[]*policies.Policy{newPolicy("a", byName), newPolicy("b", byName, priority(1)), newPolicy("c", byName, priority(-1))}, claims, "shop", []string{"b", "a", "c"}},
		"a rule by name precedes a wildcard": {
			[]*policies.Policy{newPolicy("a", everything), newPolicy("b", core), newPolicy("c", byName)}, claims, "shop", []string{"c", "a", "b"}},
		"priority precedes rules by name": {
			[]*policies.Policy{newPolicy("a", everything, priority(1)), newPolicy("c", byName)}, claims, "shop", []string{"a", "c"}},
		"a selector precedes no selector": {
			[]*policies.Policy{newPolicy("a", byName), newPolicy("b", byName, selecting), newPolicy("c", byName, selectingNamespaces)}, claims, "shop", []string{"b", "c", "a"}},
		"finally by name": {
			[]*policies.Policy{newPolicy("b", byName), newPolicy("a", byName)}, claims, "shop", []string{"a", "b"}},
		"policies of other namespaces are no candidates": {
			[]*policies.Policy{newPolicy("a", byName, inNamespace("shop")), newPolicy("b", byName, inNamespace("bank"))}, claims, "bank", []string{"b"}},
		"namespaced policies are no candidates for cluster-scoped objects": {
			[]*policies.Policy{newPolicy("a", byName, inNamespace("shop")), newPolicy("b", byName)}, claims, "", []string{"b"}},
		"policies for other resources are no candidates": {
			[]*policies.Policy{newPolicy("a", byName), newPolicy("b", core), newPolicy("c", everything)}, deployments, "shop", []string{"c"}},
		"policies with other hooks are no candidates": {
			[]*policies.Policy{newPolicy("a", byName, propagates)}, claims, "shop", nil},
	} {
		t.Run(claim, func(t *testing.T) {
			s := policies.NewSet(c.policies)
			var got []string
			for p := range s.Candidates(hostabi.HookCollect, c.resource, c.namespace) {
				got = append(got, p.Name)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if s.Has(hostabi.HookCollect, c.resource, c.namespace) != (len(c.want) != 0) {
				t.Error("Has disagrees with For")
			}
		})
	}
}

func TestSet_Nil(t *testing.T) {
	var s *policies.Set
	if s.Has(hostabi.HookCollect, claims, "shop") || len(s.All()) != 0 {
		t.Error("a nil Set has policies")
	}
}

func TestOverlaps(t *testing.T) {
	first, second := newPolicy("first", byName, priority(1)), newPolicy("second", core)
	elsewhere, here := newPolicy("elsewhere", byName, inNamespace("bank")), newPolicy("here", byName, inNamespace("shop"))
	s := policies.NewSet([]*policies.Policy{first, second, elsewhere, here})
	if got := s.Overlaps(first); len(got) != 0 {
		t.Errorf("the first comes after %+v", got)
	}
	got := s.Overlaps(here)
	if len(got) != 1 || got[0].Resource != claims.String() || !slices.Equal(got[0].Preceding, []*policies.Policy{first, second}) {
		t.Errorf("the one of a namespace comes after %+v", got)
	}
	if got := s.Overlaps(second); len(got) != 1 || !slices.Equal(got[0].Preceding, []*policies.Policy{first}) {
		t.Errorf("the second comes after %+v", got)
	}
}
