package catalog

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	all      = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	readOnly = metav1.Verbs{"get", "list"}
	deploy   = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	widget   = schema.GroupKind{Group: "example.com", Kind: "Widget"}
	appsV1   = schema.GroupVersion{Group: "apps", Version: "v1"}
	demoV1   = schema.GroupVersion{Group: "example.com", Version: "v1"}
	demoV2   = schema.GroupVersion{Group: "example.com", Version: "v2"}
)

// group returns a group whose first version is the preferred one.
func group(name string, versions ...string) *metav1.APIGroup {
	g := &metav1.APIGroup{Name: name}
	for _, v := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

func list(groupVersion string, resources ...metav1.APIResource) *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: resources}
}

func namespaced(name, kind string, verbs metav1.Verbs) metav1.APIResource {
	return metav1.APIResource{Name: name, Kind: kind, Namespaced: true, Verbs: verbs}
}

func collectedNames(c *Catalog) []string {
	var names []string
	for _, r := range c.Collected() {
		name := r.Version.GroupVersion().String() + " " + r.Version.Resource
		if r.Stale {
			name += " stale"
		}
		names = append(names, name)
	}
	return names
}

// Scenario 14: discovery succeeds.
func TestBuild(t *testing.T) {
	tests := map[string]struct {
		groups   []*metav1.APIGroup
		lists    []*metav1.APIResourceList
		settings Settings
		want     []string
	}{
		"G-01: types without delete, list or watch are left out": {
			groups: []*metav1.APIGroup{group("", "v1")},
			lists: []*metav1.APIResourceList{list("v1",
				namespaced("pods", "Pod", all),
				namespaced("bindings", "Binding", metav1.Verbs{"create"}),
				namespaced("nodelist", "NodeList", metav1.Verbs{"list", "watch"}),
				namespaced("oneway", "Oneway", metav1.Verbs{"delete", "list"}))},
			want: []string{"v1 pods"},
		},
		"G-01: subresources are left out": {
			groups: []*metav1.APIGroup{group("", "v1")},
			lists: []*metav1.APIResourceList{list("v1",
				namespaced("pods/status", "Pod", all), namespaced("pods", "Pod", all))},
			want: []string{"v1 pods"},
		},
		"G-01: the preferred version wins, whatever the lists' order": {
			groups: []*metav1.APIGroup{group("example.com", "v1", "v2")},
			lists: []*metav1.APIResourceList{
				list("example.com/v2", namespaced("widgets", "Widget", all), namespaced("gadgets", "Gadget", all)),
				list("example.com/v1", namespaced("widgets", "Widget", all))},
			want: []string{"example.com/v2 gadgets", "example.com/v1 widgets"},
		},
		"G-01: the first version that serves it wins, where the preferred one does not": {
			groups: []*metav1.APIGroup{group("example.com", "v1", "v3", "v2")},
			lists: []*metav1.APIResourceList{
				list("example.com/v1", namespaced("others", "Other", all)),
				list("example.com/v2", namespaced("widgets", "Widget", all)),
				list("example.com/v3", namespaced("widgets", "Widget", all))},
			want: []string{"example.com/v1 others", "example.com/v3 widgets"},
		},
		"G-01: a type that its version cannot collect is not taken from another": {
			groups: []*metav1.APIGroup{group("example.com", "v1", "v2")},
			lists: []*metav1.APIResourceList{
				list("example.com/v1", namespaced("widgets", "Widget", readOnly)),
				list("example.com/v2", namespaced("widgets", "Widget", all))},
		},
		"G-02: a list with an invalid group version is skipped": {
			groups: []*metav1.APIGroup{nil, group("", "v1")},
			lists: []*metav1.APIResourceList{nil, list("a/b/c", namespaced("widgets", "Widget", all)),
				list("", namespaced("widgets", "Widget", all)), list("v1", namespaced("pods", "Pod", all))},
			want: []string{"v1 pods"},
		},
		"G-10: both kinds of events are ignored": {
			groups: []*metav1.APIGroup{group("", "v1"), group("events.k8s.io", "v1"), group("example.com", "v1")},
			lists: []*metav1.APIResourceList{
				list("v1", namespaced("events", "Event", all)),
				list("events.k8s.io/v1", namespaced("events", "Event", all)),
				list("example.com/v1", namespaced("events", "Event", all))},
			settings: Settings{Ignored: DefaultIgnored()},
			want:     []string{"example.com/v1 events"},
		},
		"a kind is collected by one resource only": {
			groups: []*metav1.APIGroup{group("example.com", "v1")},
			lists: []*metav1.APIResourceList{list("example.com/v1",
				namespaced("widgets", "Widget", all), namespaced("gizmos", "Widget", all))},
			want: []string{"example.com/v1 gizmos"},
		},
		"a resource is collected by one kind only": {
			groups: []*metav1.APIGroup{group("example.com", "v2", "v1")},
			lists: []*metav1.APIResourceList{
				list("example.com/v1", namespaced("widgets", "OldWidget", all)),
				list("example.com/v2", namespaced("widgets", "Widget", all))},
			want: []string{"example.com/v2 widgets"},
		},
		"a list without its group counts": {
			lists: []*metav1.APIResourceList{list("example.com/v1", namespaced("widgets", "Widget", all))},
			want:  []string{"example.com/v1 widgets"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := collectedNames(Build(test.groups, test.lists, test.settings))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("collected (-want +got):\n%s", diff)
			}
		})
	}
}

// demo serves example.com in the given versions, and apps/v1.
func demo(settings Settings, versions ...string) *Catalog {
	groups := []*metav1.APIGroup{group("apps", "v1")}
	lists := []*metav1.APIResourceList{list("apps/v1", namespaced("deployments", "Deployment", all))}
	if len(versions) != 0 {
		groups = append(groups, group("example.com", versions...))
	}
	for _, v := range versions {
		lists = append(lists, list("example.com/"+v, namespaced("widgets", "Widget", all), namespaced("views", "View", readOnly)))
	}
	return Build(groups, lists, settings)
}

func TestCatalog_Lookups(t *testing.T) {
	c := demo(Settings{Local: map[schema.GroupVersion]bool{appsV1: true}}, "v1", "v2")
	r, ok := c.Resource(demoV2.WithKind("Widget"))
	want := Resource{Version: demoV2.WithResource("widgets"), Kind: "Widget", Namespaced: true, Collected: true}
	if !ok || r != want {
		t.Errorf("Resource(v2 Widget) = %+v, %v", r, ok)
	}
	if r, ok := c.Preferred(widget); !ok || r.Version != demoV1.WithResource("widgets") || r.Local {
		t.Errorf("Preferred(Widget) = %+v, %v", r, ok)
	}
	if r, ok := c.Preferred(deploy); !ok || !r.Local {
		t.Errorf("Preferred(Deployment) = %+v, %v; want a local one", r, ok)
	}
	if r, ok := c.Resource(demoV1.WithKind("View")); !ok || r.Collected {
		t.Errorf("Resource(View) = %+v, %v; want one that is not collected", r, ok)
	}
	if _, ok := c.Resource(schema.GroupVersionKind{Group: "example.com", Version: "v3", Kind: "Widget"}); ok {
		t.Error("a version that is not served is")
	}
	if !c.Serves(demoV2.WithResource("widgets")) || c.Serves(demoV2.WithResource("gadgets")) {
		t.Error("Serves is wrong")
	}
}

// An aggregated API server may serve one kind as several resources.
func TestBuild_AmbiguousKinds(t *testing.T) {
	c := Build(nil, []*metav1.APIResourceList{list("example.com/v1",
		namespaced("templates", "Template", all), namespaced("processedtemplates", "Template", metav1.Verbs{"create"}),
		namespaced("rooms", "Room", all), namespaced("myrooms", "Room", readOnly), namespaced("rooms/status", "Room", readOnly),
		namespaced("pods/log", "Pod", readOnly), namespaced("pods", "Pod", all),
	)}, Settings{})
	for kind, want := range map[string]bool{"Template": false, "Room": true, "Pod": false} {
		r, _ := c.Preferred(schema.GroupKind{Group: "example.com", Kind: kind})
		if r.Ambiguous != want {
			t.Errorf("%s is ambiguous: %t, want %t", kind, r.Ambiguous, want)
		}
	}
}

// Scenario 16: discovery fails for some groups.
func TestStale(t *testing.T) {
	failed := func(versions ...schema.GroupVersion) map[schema.GroupVersion]error {
		m := map[schema.GroupVersion]error{}
		for _, gv := range versions {
			m[gv] = errors.New("down")
		}
		return m
	}
	before := demo(Settings{Local: map[schema.GroupVersion]bool{demoV1: true}}, "v1")

	t.Run("G-04: what failed is stale", func(t *testing.T) {
		c := demo(Settings{Failed: failed(demoV1), Previous: before})
		r, ok := c.Preferred(widget)
		if !ok || !r.Stale || r.Local {
			t.Errorf("Preferred = %+v, %v; want it stale and not local", r, ok)
		}
		if _, ok := c.Resource(demoV1.WithKind("Widget")); ok || c.Serves(demoV1.WithResource("widgets")) {
			t.Error("a stale type counts as served")
		}
		want := []string{"apps/v1 deployments", "example.com/v1 widgets stale"}
		if diff := cmp.Diff(want, collectedNames(c)); diff != "" {
			t.Error(diff)
		}
		again := demo(Settings{Failed: failed(demoV1), Previous: c})
		if !again.Equal(c) {
			t.Error("a failure that lasts changes the catalog")
		}
		if added, removed := c.Diff(before); len(added)+len(removed) != 0 {
			t.Errorf("going stale added %v, removed %v", added, removed)
		}
		back := demo(Settings{Previous: again}, "v1")
		if r, ok := back.Resource(demoV1.WithKind("Widget")); !ok || r.Stale {
			t.Errorf("after the failure: %+v, %v", r, ok)
		}
	})
	t.Run("another version that is served comes first", func(t *testing.T) {
		c := demo(Settings{Failed: failed(demoV1), Previous: before}, "v2")
		if r, _ := c.Preferred(widget); r.Stale || r.Version != demoV2.WithResource("widgets") {
			t.Errorf("Preferred = %+v", r)
		}
		if got := collectedNames(c); !slices.Contains(got, "example.com/v2 widgets") || len(got) != 2 {
			t.Errorf("collected %v", got)
		}
	})
	t.Run("what is gone without a failure is gone", func(t *testing.T) {
		c := demo(Settings{Failed: failed(demoV2), Previous: before})
		if r, ok := c.Preferred(widget); ok {
			t.Errorf("Preferred = %+v", r)
		}
		_, removed := c.Diff(before)
		if len(removed) != 1 || removed[0].Kind != "Widget" {
			t.Errorf("removed %v", removed)
		}
	})
}

// The types of a group version that failed since the start are unknown; those of one that failed
// later are known.
func TestBuild_UnknownVersions(t *testing.T) {
	failed := map[schema.GroupVersion]error{demoV1: errors.New("down")}
	first := demo(Settings{Failed: failed})
	if diff := cmp.Diff([]schema.GroupVersion{demoV1}, first.UnknownVersions()); diff != "" {
		t.Error(diff)
	}
	if demo(Settings{}).Equal(first) {
		t.Error("a catalog that lacks types equals one that doesn't")
	}
	second := demo(Settings{Failed: failed, Previous: first})
	if diff := cmp.Diff([]schema.GroupVersion{demoV1}, second.UnknownVersions()); diff != "" {
		t.Errorf("after it has failed again: %s", diff)
	}
	named := demo(Settings{Previous: second}, "v1")
	later := demo(Settings{Failed: failed, Previous: named})
	again := demo(Settings{Failed: failed, Previous: later})
	for claim, c := range map[string]*Catalog{"named": named, "failed after it was named": later, "failed on": again, "none": nil} {
		if unknown := c.UnknownVersions(); len(unknown) != 0 {
			t.Errorf("%s: %v is unknown", claim, unknown)
		}
	}
}

func TestDiff(t *testing.T) {
	one, two := demo(Settings{}, "v1"), demo(Settings{}, "v2")
	added, removed := two.Diff(one)
	if len(added) != 1 || added[0].Version != demoV2.WithResource("widgets") || len(removed) != 1 || removed[0].Version != demoV1.WithResource("widgets") {
		t.Errorf("added %v, removed %v", added, removed)
	}
	if one.Equal(two) || !one.Equal(demo(Settings{}, "v1")) {
		t.Error("Equal is wrong")
	}
	if added, _ := one.Diff(nil); len(added) != 2 {
		t.Errorf("from nothing: added %v", added)
	}
}

func TestNil(t *testing.T) {
	var c *Catalog
	if _, ok := c.Resource(demoV1.WithKind("Widget")); ok {
		t.Error("Resource")
	}
	if _, ok := c.Preferred(widget); ok || c.Serves(demoV1.WithResource("widgets")) || c.Collected() != nil {
		t.Error("nil serves something")
	}
	if !c.Equal(Build(nil, nil, Settings{})) || c.Equal(demo(Settings{})) || !c.Equal(nil) {
		t.Error("Equal is wrong")
	}
}
