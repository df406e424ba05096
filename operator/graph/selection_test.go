package graph_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/selection"
)

// labeledAs returns the Selection of labels for a selector.
func labeledAs(t *testing.T, selector string, set labels.Set) selection.Selection {
	t.Helper()
	parsed, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return selection.NewList(map[string]labels.Selector{selector: parsed}).Evaluate(set)
}

// A Selection counts for one resourceVersion. A write with that as a precondition then has no
// effect on an object with other labels.
func TestSelection_IsKeptWithItsResourceVersion(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	at := func(version string, s selection.Selection) graph.Object {
		return graph.Object{UID: "a", Kind: kind, Namespace: "shop", Name: "a", ResourceVersion: version, Selection: s}
	}
	first, other := labeledAs(t, "a=1", nil), labeledAs(t, "a=1", labels.Set{"a": "1"})
	none := selection.Selection{}
	interrupted := graph.Interrupted{Kind: kind.GroupKind(), At: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		events []graph.Event
		want   selection.Selection
	}{
		"seen":                             {[]graph.Event{graph.Seen{Object: at("5", first)}}, first},
		"seen again":                       {[]graph.Event{graph.Seen{Object: at("5", first)}, graph.Seen{Object: at("6", other)}}, other},
		"read in the same version":         {[]graph.Event{graph.Seen{Object: at("5", first)}, graph.Read{Object: at("5", none)}}, first},
		"written":                          {[]graph.Event{graph.Seen{Object: at("5", first)}, graph.Read{Object: at("6", none)}}, none},
		"written, then seen":               {[]graph.Event{graph.Seen{Object: at("5", first)}, graph.Read{Object: at("6", none)}, graph.Seen{Object: at("6", other)}}, other},
		"an older one is seen late":        {[]graph.Event{graph.Seen{Object: at("6", first)}, graph.Seen{Object: at("5", other)}}, first},
		"labeled":                          {[]graph.Event{graph.Seen{Object: at("5", none)}, graph.Labeled{UID: "a", ResourceVersion: "5", Selection: first}}, first},
		"labeled anew":                     {[]graph.Event{graph.Seen{Object: at("5", other)}, graph.Labeled{UID: "a", ResourceVersion: "5", Selection: first}}, first},
		"labeled in an older version":      {[]graph.Event{graph.Seen{Object: at("6", none)}, graph.Labeled{UID: "a", ResourceVersion: "5", Selection: first}}, none},
		"labeled in a newer version":       {[]graph.Event{graph.Seen{Object: at("5", other)}, graph.Labeled{UID: "a", ResourceVersion: "6", Selection: first}}, other},
		"labeled without a version":        {[]graph.Event{graph.Seen{Object: at("", none)}, graph.Labeled{UID: "a", Selection: first}}, first},
		"labeled in another odd version":   {[]graph.Event{graph.Seen{Object: at("x", none)}, graph.Labeled{UID: "a", ResourceVersion: "y", Selection: first}}, none},
		"labeled in the same odd version":  {[]graph.Event{graph.Seen{Object: at("x", none)}, graph.Labeled{UID: "a", ResourceVersion: "x", Selection: first}}, first},
		"the watch has ended":              {[]graph.Event{graph.Seen{Object: at("5", first)}, interrupted}, none},
		"and delivers again":               {[]graph.Event{graph.Seen{Object: at("5", first)}, interrupted, graph.Seen{Object: at("5", first)}}, first},
		"of an aggregated API server":      {[]graph.Event{graph.Listing{Kind: kind.GroupKind(), Incomparable: true}, graph.Seen{Object: at("5", first)}}, none},
		"gone, then created with its name": {[]graph.Event{graph.Seen{Object: at("5", first)}, graph.TypeGone{Kind: kind.GroupKind()}, graph.Seen{Object: at("5", none)}}, none},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph.New()
			for _, e := range c.events {
				g.Apply(e, nil)
			}
			if err := g.Check(); err != nil {
				t.Error(err)
			}
			view, ok := g.Lookup(graph.IDOf("a"))
			if !ok || view.Object.Selection != c.want {
				t.Errorf("found %t, got the wrong selection", ok)
			}
		})
	}
}

func TestLabeled_OfAnUnknownObject_AddsNothing(t *testing.T) {
	g := graph.New()
	g.Apply(graph.Labeled{UID: "a", ResourceVersion: "5", Selection: labeledAs(t, "a=1", nil)}, nil)
	if err := g.Check(); err != nil || g.Has("a") {
		t.Errorf("it is in the graph: %t, %v", g.Has("a"), err)
	}
}
