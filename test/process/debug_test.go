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

// pair makes an owner with a dependent, and waits until the graph has both.
func pair(w *world, g *gleaner, name string) (owner, dependent *corev1.ConfigMap) {
	w.Helper()
	owner = w.make(name + "-owner")
	dependent = w.make(name, owner)
	g.knows(dependent)
	return owner, dependent
}

// knows waits until the graph has an object.
func (g *gleaner) knows(o *corev1.ConfigMap) {
	g.Helper()
	devtest.Eventually(g, patience, func() error {
		if got := g.get("/debug/gc/graph?uid=" + string(o.UID)); got.code != http.StatusOK {
			return errors.New(got.body)
		}
		return nil
	})
}

// names returns the names of a dump's objects, in the dump's order.
func names(d graph.Dump) []string {
	list := []string{}
	for _, n := range d.Nodes {
		list = append(list, n.Name)
	}
	return list
}

// sameNames compares lists of names in any order.
func sameNames(t *testing.T, got []string, want ...string) {
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

func TestG75_TheGraphIsServedAsDOTThatNoBrowserGuessesAbout(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t))
	owner, dependent := pair(w, g, "dependent")
	for _, path := range []string{"/debug/gc/graph", "/debug/gc/graph?format=dot", "/debug/gc/graph?uid=" + string(owner.UID)} {
		got := g.get(path)
		if got.code != http.StatusOK || got.header.Get("Content-Type") != "text/vnd.graphviz" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s answers %d, %v", path, got.code, got.header)
		}
		for _, part := range []string{
			"strict digraph full {\n",
			`"` + string(dependent.UID) + `" -> "` + string(owner.UID) + `";`,
			`label="uid=` + string(owner.UID) + `\nnamespace=` + w.ns + `\nConfigMap\ndependent-owner"`,
		} {
			if !strings.Contains(got.body, part) {
				t.Errorf("%s has no %s", path, part)
			}
		}
	}
}

// uid= may be there more than once: each adds what belongs to it, and nothing else is shown.
func TestG75_TheGraphIsServedForEachUIDThatIsGiven(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t))
	first, _ := pair(w, g, "first")
	second, _ := pair(w, g, "second")
	third, _ := pair(w, g, "third")
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

func TestG75_OtherPathsAreNotFound(t *testing.T) {
	g := running(t, sharedCluster(t))
	for _, path := range []string{"/debug", "/debug/gc", "/debug/gc/", "/debug/gc/graph/", "/debug/pprof/", "/"} {
		if got := g.get(path); got.code != http.StatusNotFound {
			t.Errorf("%s answers %d", path, got.code)
		}
	}
}

func TestGraph_IsJSONForWhoAsksForIt(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t))
	owner, dependent := pair(w, g, "dependent")
	path := "/debug/gc/graph?uid=" + string(owner.UID)
	for name, got := range map[string]answer{
		"by Accept":                        g.get(path, "Accept", "application/json"),
		"by Accept among others":           g.get(path, "Accept", "text/html, application/json;q=0.9"),
		"by format=":                       g.get(path + "&format=json"),
		"by format=, which outdoes Accept": g.get(path+"&format=json", "Accept", "text/vnd.graphviz"),
	} {
		t.Run(name, func(t *testing.T) {
			dump := decode[graph.Dump](t, got)
			sameNames(t, names(dump), "dependent", "dependent-owner")
			want := []graph.DumpEdge{{Dependent: dependent.UID, Owner: owner.UID}}
			if diff := cmp.Diff(want, dump.Edges); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// From each of a family's members, up to its owners, down to their dependents, and to the
// other owners of these; several UIDs show all their families, and no other.
func TestG77_EveryUIDShowsTheWholeOfWhatItIsConnectedTo(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t))
	root, second := w.make("root"), w.make("second")
	middle := w.make("middle", root)
	leaf, shared, sibling := w.make("leaf", middle), w.make("shared", middle, second), w.make("sibling", root)
	family := []*corev1.ConfigMap{root, second, middle, leaf, shared, sibling}
	for _, o := range family {
		g.knows(o)
	}
	other, _ := pair(w, g, "other")
	pair(w, g, "third")
	want := []string{"root", "second", "middle", "leaf", "shared", "sibling"}
	for _, from := range family {
		dump := decode[graph.Dump](t, g.get("/debug/gc/graph?format=json&uid="+string(from.UID)))
		sameNames(t, names(dump), want...)
		if len(dump.Edges) != 5 {
			t.Errorf("from %s: the references are %v", from.Name, dump.Edges)
		}
	}
	both := decode[graph.Dump](t, g.get("/debug/gc/graph?format=json&uid="+string(leaf.UID)+"&uid="+string(other.UID)))
	sameNames(t, names(both), append(want, "other", "other-owner")...)
}

func TestGraph_OfAnUnknownUIDIsNotFound(t *testing.T) {
	w := newWorld(t, sharedCluster(t))
	g := running(t, sharedCluster(t))
	known, _ := pair(w, g, "dependent")
	for _, query := range []string{"uid=none", "format=json&uid=none", "uid=" + string(known.UID) + "&uid=none"} {
		if got := g.get("/debug/gc/graph?" + query); got.code != http.StatusNotFound || !strings.Contains(got.body, `"none"`) {
			t.Errorf("%s answers %d: %s", query, got.code, got.body)
		}
	}
}

func TestGraph_InAnUnknownFormatIsRefusedWithThoseThereAre(t *testing.T) {
	g := running(t, sharedCluster(t))
	if got := g.get("/debug/gc/graph?format=yaml"); got.code != http.StatusBadRequest || !strings.Contains(got.body, "use format=dot or format=json") {
		t.Errorf("answers %d: %s", got.code, got.body)
	}
}
