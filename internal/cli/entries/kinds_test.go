package entries

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKindMatcher_RecognizesTypesThatAreGone(t *testing.T) {
	widget := schema.GroupKind{Group: "example.com", Kind: "Widget"}
	gone := func(string) (*meta.RESTMapping, error) { return nil, errors.New("no such type") }
	for word, want := range map[string]bool{
		"widget": true, "widgets": true, "Widget": true, "widgets.example.com": true, "widgets.v1.example.com": true,
		"gadget": false, "widgets.example.org": false, "": false,
	} {
		if matches, _ := KindMatcher(word, gone); matches(widget) != want {
			t.Errorf("%q: %t", word, !want)
		}
	}
	served := func(string) (*meta.RESTMapping, error) {
		return &meta.RESTMapping{GroupVersionKind: widget.WithVersion("v1"), Scope: meta.RESTScopeNamespace}, nil
	}
	if matches, namespaced := KindMatcher("w", served); !matches(widget) || matches(schema.GroupKind{Kind: "Widget"}) || !namespaced {
		t.Error("a type that is served is not recognized")
	}
}
