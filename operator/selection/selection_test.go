package selection_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/gleaner-dev/gleaner/operator/selection"
)

func listOf(t *testing.T, texts ...string) *selection.List {
	t.Helper()
	byText := map[string]labels.Selector{}
	for _, text := range texts {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		byText[text] = selector
	}
	return selection.NewList(byText)
}

func TestResults_AreWhatTheSelectorsSay(t *testing.T) {
	var texts []string
	for i := range 20 { // more than fit into a byte
		texts = append(texts, fmt.Sprintf("tier=%d", i), fmt.Sprintf("!tier,n!=%d", i), fmt.Sprintf("n,tier in (%d,19)", i),
			fmt.Sprintf("n>%d", i), fmt.Sprintf("tier,n!=%d", i), fmt.Sprintf("tier notin (%d)", i))
	}
	list := listOf(t, texts...)
	for _, set := range []labels.Set{nil, {"tier": "3"}, {"tier": "19", "n": "1"}, {"n": "7"}, {"n": "7", "tier": "3"}, {"n": ""}, {"tier": ""}, {"n": "x", "other": "y"}} {
		s := list.Evaluate(set)
		for _, text := range texts {
			position, ok := list.Position(text)
			if !ok {
				t.Fatalf("%s is not in the list", text)
			}
			selector, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if results, known := list.Results(s); !known || results.Matches(position) != selector.Matches(set) {
				t.Errorf("%s on %v: got %t, known %t", text, set, !selector.Matches(set), known)
			}
		}
	}
}

func TestResults_OfOtherSelectors_AreUnknown(t *testing.T) {
	list, set := listOf(t, "a=1", "b=1"), labels.Set{"a": "1"}
	for name, other := range map[string]*selection.List{
		"one more":  listOf(t, "a=1", "b=1", "c=1"),
		"one less":  listOf(t, "a=1"),
		"another":   listOf(t, "a=1", "b=2"),
		"none":      listOf(t),
		"no list":   nil,
		"in itself": listOf(t, "a=1\x00b=1"[:3], "b=1", "b=1,a=1"),
	} {
		if _, known := list.Results(other.Evaluate(set)); known {
			t.Errorf("%s: the result counts", name)
		}
		if _, known := other.Results(list.Evaluate(set)); known {
			t.Errorf("%s: the result counts in the other direction", name)
		}
		if list.Equal(other) || other.Equal(list) {
			t.Errorf("%s: the lists are equal", name)
		}
	}
	if _, known := list.Results(selection.Selection{}); known {
		t.Error("the zero Selection says something")
	}
}

func TestList_OfTheSameSelectors_SharesResults(t *testing.T) {
	a, b := listOf(t, "a=1", "b=1"), listOf(t, "b=1", "a=1")
	set := labels.Set{"b": "1"}
	if a.Evaluate(set) != b.Evaluate(set) || !a.Equal(b) || !a.IsKnown(b.Evaluate(set)) {
		t.Error("the results differ")
	}
	if position, _ := a.Position("b=1"); position != 1 {
		t.Errorf("got position %d of b=1, want 1", position)
	}
	if results, known := a.Results(b.Evaluate(set)); !known || !results.Matches(1) || results.Matches(0) {
		t.Errorf("got %q, known %t", results, known)
	}
	if _, ok := a.Position("c=1"); ok {
		t.Error("the list has a selector that it was not given")
	}
}
