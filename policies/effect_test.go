package policies_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/gleaner-dev/gleaner/policies"
)

func TestMayOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"tier=data", "tier=data", true},
		{"tier=data", "tier=web", false},
		{"tier in (data,web)", "tier=web", true},
		{"tier=data", "tier!=data", false},
		{"tier in (data,web)", "tier!=data", true},
		{"tier=data", "!tier", false},
		{"tier", "!tier", false},
		{"tier", "tier!=data", true},
		{"!tier", "tier!=data", true},
		{"tier=data", "app=web", true},
		{"", "tier=data", true},
		{"size>3", "size=2", false},
		{"size>3", "size<2", true}, // no value matches both, which is not detected
	} {
		a, b := selectorOf(t, c.a), selectorOf(t, c.b)
		x, y := &policies.Policy{ObjectSelector: a}, &policies.Policy{ObjectSelector: b}
		if x.MayOverlap(y) != c.want || y.MayOverlap(x) != c.want {
			t.Errorf("objects %q and %q: want %t", c.a, c.b, c.want)
		}
		x, y = &policies.Policy{NamespaceSelector: a}, &policies.Policy{NamespaceSelector: b}
		if x.MayOverlap(y) != c.want {
			t.Errorf("namespaces %q and %q: want %t", c.a, c.b, c.want)
		}
	}
	if x := (&policies.Policy{ObjectSelector: selectorOf(t, "tier=data")}); !x.MayOverlap(&policies.Policy{}) {
		t.Error("a policy without a selector does not select all objects")
	}
}

func selectorOf(t *testing.T, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
