package process

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// createPair creates an owner with a dependent, and waits until the graph has both.
func createPair(w *env, g *operator, name string) (owner, dependent *corev1.ConfigMap) {
	w.Helper()
	owner = w.create(name + "-owner")
	dependent = w.create(name, owner)
	g.waitForGraph(dependent)
	return owner, dependent
}

// waitForGraph waits until the graph has an object.
func (g *operator) waitForGraph(o *corev1.ConfigMap) {
	g.Helper()
	devtest.Eventually(g, timeout, func() error {
		if got := g.get("/debug/gc/graph?uid=" + string(o.UID)); got.code != http.StatusOK {
			return errors.New(got.body)
		}
		return nil
	})
}

// dumpNames returns the names of a dump's objects, in the dump's order.
func dumpNames(d graph.Dump) []string {
	list := []string{}
	for _, n := range d.Nodes {
		list = append(list, n.Name)
	}
	return list
}

// compareNames compares lists of names in any order.
func compareNames(t *testing.T, got []string, want ...string) {
	t.Helper()
	count := map[string]int{}
	for _, name := range got {
		count[name]++
	}
	expected := map[string]int{}
	for _, name := range want {
		expected[name]++
	}
	if diff := cmp.Diff(expected, count); diff != "" {
		t.Error(diff)
	}
}

func TestG75_Graph_IsServedAsDOT_WithoutSniffing(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t))
	owner, dependent := createPair(w, g, "dependent")
	for _, path := range []string{"/debug/gc/graph", "/debug/gc/graph?format=dot", "/debug/gc/graph?uid=" + string(owner.UID)} {
		got := g.get(path)
		if got.code != http.StatusOK || got.header.Get("Content-Type") != "text/vnd.graphviz" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %d, %v", path, got.code, got.header)
		}
		for _, part := range []string{
			"strict digraph full {\n",
			`"` + string(dependent.UID) + `" -> "` + string(owner.UID) + `";`,
			`label="uid=` + string(owner.UID) + `\nnamespace=` + w.ns + `\nConfigMap\ndependent-owner"`,
		} {
			if !strings.Contains(got.body, part) {
				t.Errorf("%s lacks %s", path, part)
			}
		}
	}
}

// uid= may be repeated: each adds the connected objects, and no others are shown.
func TestG75_Graph_OfSeveralUIDs(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t))
	first, _ := createPair(w, g, "first")
	second, _ := createPair(w, g, "second")
	third, _ := createPair(w, g, "third")
	for query, shown := range map[string][]*corev1.ConfigMap{
		"uid=" + string(first.UID):                                {first},
		"uid=" + string(first.UID) + "&uid=" + string(second.UID): {first, second},
		"format=dot": {first, second, third},
	} {
		got := g.get("/debug/gc/graph?" + query)
		if !strings.HasPrefix(got.body, "strict digraph full {\n") || !strings.HasSuffix(got.body, "}\n") {
			t.Errorf("%s: %s", query, got.body)
		}
		for _, o := range []*corev1.ConfigMap{first, second, third} {
			want := slices.Contains(shown, o)
			if is := strings.Contains(got.body, `uid="`+string(o.UID)+`"`); is != want {
				t.Errorf("%s: %s is shown: %t, want %t:\n%s", query, o.Name, is, want, got.body)
			}
		}
	}
}

func TestG75_OtherPaths_AreNotFound(t *testing.T) {
	g := startReady(t, devtest.Shared(t))
	for _, path := range []string{"/debug", "/debug/gc", "/debug/gc/", "/debug/gc/graph/", "/debug/pprof/", "/"} {
		if got := g.get(path); got.code != http.StatusNotFound {
			t.Errorf("%s: got %d", path, got.code)
		}
	}
}

func TestGraph_IsServedAsJSON_OnRequest(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t))
	owner, dependent := createPair(w, g, "dependent")
	path := "/debug/gc/graph?uid=" + string(owner.UID)
	for name, got := range map[string]httpResult{
		"by Accept":                          g.get(path, "Accept", "application/json"),
		"by Accept among others":             g.get(path, "Accept", "text/html, application/json;q=0.9"),
		"by format=":                         g.get(path + "&format=json"),
		"by format=, which overrides Accept": g.get(path+"&format=json", "Accept", "text/vnd.graphviz"),
	} {
		t.Run(name, func(t *testing.T) {
			dump := decode[graph.Dump](t, got)
			compareNames(t, dumpNames(dump), "dependent", "dependent-owner")
			want := []graph.DumpEdge{{Dependent: dependent.UID, Owner: owner.UID}}
			if diff := cmp.Diff(want, dump.Edges); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The graph of a UID contains its owners, their dependents, and the
// other owners of these, transitively; several UIDs show all their graphs, and no other.
func TestG77_Graph_OfAUID_HasAllConnectedObjects(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t))
	root, second := w.create("root"), w.create("second")
	middle := w.create("middle", root)
	leaf, shared, sibling := w.create("leaf", middle), w.create("shared", middle, second), w.create("sibling", root)
	family := []*corev1.ConfigMap{root, second, middle, leaf, shared, sibling}
	for _, o := range family {
		g.waitForGraph(o)
	}
	other, _ := createPair(w, g, "other")
	createPair(w, g, "third")
	want := []string{"root", "second", "middle", "leaf", "shared", "sibling"}
	for _, from := range family {
		dump := decode[graph.Dump](t, g.get("/debug/gc/graph?format=json&uid="+string(from.UID)))
		compareNames(t, dumpNames(dump), want...)
		if len(dump.Edges) != 5 {
			t.Errorf("from %s: references are %v", from.Name, dump.Edges)
		}
	}
	both := decode[graph.Dump](t, g.get("/debug/gc/graph?format=json&uid="+string(leaf.UID)+"&uid="+string(other.UID)))
	compareNames(t, dumpNames(both), append(want, "other", "other-owner")...)
}

func TestGraph_OfAnUnknownUIDIsNotFound(t *testing.T) {
	w := newEnv(t, devtest.Shared(t))
	g := startReady(t, devtest.Shared(t))
	known, _ := createPair(w, g, "dependent")
	for _, query := range []string{"uid=none", "format=json&uid=none", "uid=" + string(known.UID) + "&uid=none"} {
		if got := g.get("/debug/gc/graph?" + query); got.code != http.StatusNotFound || !strings.Contains(got.body, `"none"`) {
			t.Errorf("%s: got %d: %s", query, got.code, got.body)
		}
	}
}

func TestGraph_InAnUnknownFormat_IsRefused(t *testing.T) {
	g := startReady(t, devtest.Shared(t))
	if got := g.get("/debug/gc/graph?format=yaml"); got.code != http.StatusBadRequest || !strings.Contains(got.body, "use format=dot or format=json") {
		t.Errorf("got %d: %s", got.code, got.body)
	}
}
