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

// of is a policy that answers collect, with changes.
func of(name string, rules []policies.Rule, changes ...func(*policies.Policy)) *policies.Policy {
	p := &policies.Policy{Name: name, Rules: rules, Hooks: []hostabi.Hook{hostabi.HookCollect}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func in(namespace string) func(*policies.Policy) {
	return func(p *policies.Policy) { p.Namespace = namespace }
}
func priority(n int32) func(*policies.Policy) { return func(p *policies.Policy) { p.Priority = n } }
func overridable(p *policies.Policy)          { p.Overridable = true }
func selecting(p *policies.Policy)            { p.Objects = some }
func selectingNamespaces(p *policies.Policy)  { p.Namespaces = some }
func propagates(p *policies.Policy)           { p.Hooks = []hostabi.Hook{hostabi.HookPropagate} }

func TestPoliciesAreAskedInTheOrderOfPrecedence(t *testing.T) {
	for claim, c := range map[string]struct {
		policies  []*policies.Policy
		resource  schema.GroupResource
		namespace string
		want      []string
	}{
		"without any, nobody is asked": {nil, claims, "shop", nil},
		"those of the cluster go before those of a namespace": {
			[]*policies.Policy{of("b", byName, in("shop"), priority(9)), of("z", byName)}, claims, "shop", []string{"z", "b"}},
		"unless they let them": {
			[]*policies.Policy{of("b", byName, in("shop")), of("a", byName, overridable, priority(9)), of("z", byName)}, claims, "shop",
			[]string{"z", "b", "a"}},
		"the higher priority goes first": {
			[]*policies.Policy{of("a", byName), of("b", byName, priority(1)), of("c", byName, priority(-1))}, claims, "shop", []string{"b", "a", "c"}},
		"one that names the resource goes before one for all": {
			[]*policies.Policy{of("a", everything), of("b", core), of("c", byName)}, claims, "shop", []string{"c", "a", "b"}},
		"but priority counts more": {
			[]*policies.Policy{of("a", everything, priority(1)), of("c", byName)}, claims, "shop", []string{"a", "c"}},
		"one for some objects goes before one for all": {
			[]*policies.Policy{of("a", byName), of("b", byName, selecting), of("c", byName, selectingNamespaces)}, claims, "shop", []string{"b", "c", "a"}},
		"at last the name decides": {
			[]*policies.Policy{of("b", byName), of("a", byName)}, claims, "shop", []string{"a", "b"}},
		"those of other namespaces are not asked": {
			[]*policies.Policy{of("a", byName, in("shop")), of("b", byName, in("bank"))}, claims, "bank", []string{"b"}},
		"nor are those of any namespace about what is in none": {
			[]*policies.Policy{of("a", byName, in("shop")), of("b", byName)}, claims, "", []string{"b"}},
		"nor those for other resources": {
			[]*policies.Policy{of("a", byName), of("b", core), of("c", everything)}, deployments, "shop", []string{"c"}},
		"nor those that answer other questions": {
			[]*policies.Policy{of("a", byName, propagates)}, claims, "shop", nil},
	} {
		t.Run(claim, func(t *testing.T) {
			s := policies.NewSet(c.policies)
			var got []string
			for p := range s.For(hostabi.HookCollect, c.resource, c.namespace) {
				got = append(got, p.Name)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if s.Has(hostabi.HookCollect, c.resource, c.namespace) != (len(c.want) != 0) {
				t.Error("Has says otherwise")
			}
		})
	}
}

func TestNoSetHasNoPolicies(t *testing.T) {
	var s *policies.Set
	if s.Has(hostabi.HookCollect, claims, "shop") || len(s.All()) != 0 {
		t.Error("it has some")
	}
}

func TestThoseThatComeLaterOverlap(t *testing.T) {
	first, second := of("first", byName, priority(1)), of("second", core)
	elsewhere, here := of("elsewhere", byName, in("bank")), of("here", byName, in("shop"))
	s := policies.NewSet([]*policies.Policy{first, second, elsewhere, here})
	if got := s.Overlaps(first); len(got) != 0 {
		t.Errorf("the first comes after %+v", got)
	}
	got := s.Overlaps(here)
	if len(got) != 1 || got[0].Resource != claims.String() || !slices.Equal(got[0].Before, []*policies.Policy{first, second}) {
		t.Errorf("the one of a namespace comes after %+v", got)
	}
	if got := s.Overlaps(second); len(got) != 1 || !slices.Equal(got[0].Before, []*policies.Policy{first}) {
		t.Errorf("the second comes after %+v", got)
	}
}
