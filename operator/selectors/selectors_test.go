package selectors_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/selection"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/policies"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// policy returns a policy for widgets, and for gadgets if it has a wildcard rule.
func policy(t *testing.T, namespace, name, selector string, hooks ...hostabi.Hook) *policies.Policy {
	t.Helper()
	p := &policies.Policy{
		Namespace: namespace, Name: name, Hooks: hooks, Rules: []policies.Rule{{Groups: []string{"example.com"}, Resources: []string{"widgets"}}},
	}
	if len(hooks) == 0 {
		p.Hooks = []hostabi.Hook{hostabi.HookCollect}
	}
	if selector != "" {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		p.ObjectSelector = parsed
	}
	return p
}

func indexOf(all ...*policies.Policy) *selectors.Index { return selectors.New(policies.NewSet(all)) }

// wantSelects fails the test unless a policy selects the labels as given: "yes", "no" or "unknown".
func wantSelects(t *testing.T, s *selectors.Scope, p *policies.Policy, of selection.Selection, want string) {
	t.Helper()
	got := "unknown"
	if selects, known := s.Results(of).Selects(p); known {
		got = map[bool]string{true: "yes", false: "no"}[selects]
	}
	if got != want {
		t.Errorf("%s selects it: got %s, want %s", p, got, want)
	}
}

func TestScope_HasThePoliciesOfItsObjects(t *testing.T) {
	all, both := policy(t, "", "all", "tier=data"), policy(t, "", "both", "tier=data", hostabi.HookPropagate, hostabi.HookCollect)
	shop, bank := policy(t, "shop", "own", "keep"), policy(t, "bank", "own", "keep")
	wide, none := policy(t, "", "wide", "!tier"), policy(t, "", "none", "")
	wide.Rules = []policies.Rule{{Groups: []string{"*"}, Resources: []string{"*"}}}
	x := indexOf(all, both, shop, bank, wide, none)

	in := x.Scope(widgets, "shop")
	of := in.Evaluate(labels.Set{"tier": "data", "keep": "1"})
	for p, want := range map[*policies.Policy]string{all: "yes", both: "yes", shop: "yes", bank: "unknown", wide: "no", none: "unknown"} {
		wantSelects(t, in, p, of, want)
	}

	gadgets := x.Scope(schema.GroupResource{Group: "example.com", Resource: "gadgets"}, "shop")
	of = gadgets.Evaluate(nil)
	wantSelects(t, gadgets, wide, of, "yes")
	wantSelects(t, gadgets, all, of, "unknown")
	wantSelects(t, in, wide, of, "unknown") // other selectors are for widgets

	if x.Scope(widgets, "") != x.Scope(widgets, "elsewhere") {
		t.Error("namespaces without policies have scopes of their own")
	}
}

// What other policies say is unknown until their selectors are evaluated.
func TestScope_AfterAChange_KnowsWhatStillCounts(t *testing.T) {
	set := labels.Set{"tier": "data"}
	before := indexOf(policy(t, "", "p", "tier=data"), policy(t, "shop", "own", "a=1"))
	cluster, shop := before.Scope(widgets, "").Evaluate(set), before.Scope(widgets, "shop").Evaluate(set)

	same, own := policy(t, "", "renamed", "tier=data"), policy(t, "shop", "own", "b=1")
	after := indexOf(same, own)
	wantSelects(t, after.Scope(widgets, ""), same, cluster, "yes") // nothing has changed for it
	wantSelects(t, after.Scope(widgets, "shop"), same, shop, "unknown")
	wantSelects(t, after.Scope(widgets, "shop"), own, shop, "unknown")
	wantSelects(t, after.Scope(widgets, ""), same, selection.Selection{}, "unknown")
}

func TestScope_WithoutSelectors_KnowsNothing(t *testing.T) {
	p := policy(t, "", "none", "")
	for name, x := range map[string]*selectors.Index{"no index": nil, "no policies": indexOf(), "no selectors": indexOf(p)} {
		s := x.Scope(widgets, "shop")
		if of := s.Evaluate(labels.Set{"a": "1"}); !of.IsEmpty() || !s.List().IsEmpty() {
			t.Errorf("%s: got a selection", name)
		}
		wantSelects(t, s, p, selection.Selection{}, "unknown")
	}
}

// A tenant's selectors are evaluated on the events of a type, one after the other.
func TestScope_SelectorsAreLimited(t *testing.T) {
	cluster, large := policy(t, "", "cluster", "tier=data"), policy(t, "shop", "large", "")
	var distinct []string
	for i := range 100 {
		distinct = append(distinct, fmt.Sprintf("v%059d", i))
	}
	selector, err := labels.Parse("a in (" + strings.Join(distinct, ",") + ")")
	if err != nil {
		t.Fatal(err)
	}
	large.ObjectSelector = selector
	ofShop := []*policies.Policy{cluster, large}
	for i := range 100 {
		ofShop = append(ofShop, policy(t, "shop", fmt.Sprint(i), fmt.Sprintf("n=%d", i)))
	}
	x := indexOf(ofShop...)
	s := x.Scope(widgets, "shop")
	of := s.Evaluate(labels.Set{"n": "7", "tier": "data", "a": distinct[3]})
	wantSelects(t, s, ofShop[2+7], of, "yes")
	wantSelects(t, s, ofShop[2+8], of, "no")
	wantSelects(t, s, large, of, "unknown")

	x = indexOf(append(ofShop, policy(t, "shop", "one-too-many", "n=x"))...)
	s = x.Scope(widgets, "shop")
	of = s.Evaluate(labels.Set{"n": "7", "tier": "data"})
	wantSelects(t, s, ofShop[2+7], of, "unknown")
	wantSelects(t, s, cluster, of, "yes") // which a tenant can't change
}
