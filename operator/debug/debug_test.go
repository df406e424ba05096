package debug

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; then read the diff")

var (
	configMap  = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	deployment = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
)

func object(kind schema.GroupVersionKind, name, uid string, owners ...metav1.OwnerReference) graph.Object {
	return graph.Object{UID: types.UID(uid), ResourceVersion: "7", Kind: kind, Namespace: "ns", Name: name, Owners: owners}
}

func owner(kind schema.GroupVersionKind, name, uid string) metav1.OwnerReference {
	apiVersion, k := kind.ToAPIVersionAndKind()
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: k, Name: name, UID: types.UID(uid)}
}

// source returns a Source with a graph of the objects.
func source(objects ...graph.Object) Source {
	g := graph.New()
	for _, o := range objects {
		g.Apply(graph.Seen{Object: o}, nil)
	}
	return Source{
		Dump: g.Dump, ReadAccess: AllowAll,
		Unsynced:     func() []string { return nil },
		Synced:       func() bool { return true },
		Records:      func(types.UID) []record.Entry { return nil },
		RecordsSince: func() time.Time { return time.Time{} },
		Status:       func() Status { return Status{} },
	}
}

// family returns a Deployment with a blocking dependent and one that is being deleted, and
// an object that has neither owner nor dependents.
func family() []graph.Object {
	blocking := owner(deployment, "web", "2")
	blocking.BlockOwnerDeletion = ptr.To(true)
	terminating := object(configMap, "leaving", "4", owner(deployment, "web", "2"))
	terminating.Terminating, terminating.Foreground = true, true
	return []graph.Object{
		object(deployment, "web", "2"), object(configMap, "settings", "3", blocking), terminating,
		object(configMap, "lonely", "5"),
	}
}

func get(t *testing.T, s Source, url string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return serve(t, Handlers(s), r)
}

func serve(t *testing.T, handlers map[string]http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	handler, ok := handlers[r.URL.Path]
	if !ok {
		t.Fatalf("nothing serves %s", r.URL.Path)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// G-76, and defect 3.27 in the third.
func TestDOT(t *testing.T) {
	tricky := `a "name" with \n, \ and` + "\n" + `a line break`
	for name, objects := range map[string][]graph.Object{
		"empty":    nil,
		"simple":   family(),
		"escaping": {object(configMap, tricky, "1", owner(configMap, `"]; evil -> node [label="`, "2"))},
		"missing": {
			object(configMap, "a", "1", owner(configMap, "lost", "9")),
			object(configMap, "b", "2", owner(configMap, "lost", "9")),
			object(configMap, "c", "3", owner(configMap, "a", "1")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(t, source(objects...), "/debug/gc/graph")
			file := filepath.Join("testdata", name+".dot")
			if *rewrite {
				if err := os.WriteFile(file, w.Body.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), w.Body.String()); diff != "" {
				t.Error(diff)
			}
			header := map[string]string{"type": w.Header().Get("Content-Type"), "sniff": w.Header().Get("X-Content-Type-Options")}
			if diff := cmp.Diff(map[string]string{"type": "text/vnd.graphviz", "sniff": "nosniff"}, header); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Defect 3.27: an owner that is missing is one vertex, under its own UID, to
// all its dependents.
func TestGraph_MissingOwnerIsOneVertex(t *testing.T) {
	s := source(
		object(configMap, "a", "1", owner(configMap, "lost", "9")),
		object(configMap, "b", "2", owner(configMap, "lost", "9")),
		object(configMap, "c", "3", owner(configMap, "a", "1")),
	)
	var got graph.Dump
	decode(t, get(t, s, "/debug/gc/graph?format=json"), &got)
	node := func(uid, state, name string) graph.DumpNode {
		return graph.DumpNode{UID: types.UID(uid), State: state, APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: name}
	}
	want := graph.Dump{
		Nodes: []graph.DumpNode{node("1", "seen", "a"), node("2", "seen", "b"), node("3", "seen", "c"), node("9", "named", "lost")},
		Edges: []graph.DumpEdge{{Dependent: "1", Owner: "9"}, {Dependent: "2", Owner: "9"}, {Dependent: "3", Owner: "1"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func decode(t *testing.T, w *httptest.ResponseRecorder, into any) {
	t.Helper()
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
}

func TestGraph_NegotiatesTheFormat(t *testing.T) {
	const dot, asJSON = "text/vnd.graphviz", "application/json"
	for name, c := range map[string]struct {
		url, accept string
		want        string
	}{
		"no format":                  {"/debug/gc/graph", "", dot},
		"any format accepted":        {"/debug/gc/graph", "*/*", dot},
		"JSON accepted":              {"/debug/gc/graph", "application/json", asJSON},
		"JSON requested":             {"/debug/gc/graph?format=json", "", asJSON},
		"DOT requested":              {"/debug/gc/graph?format=dot", "", dot},
		"the query takes precedence": {"/debug/gc/graph?format=dot", "application/json", dot},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(t, source(family()...), c.url, "Accept", c.accept)
			if got := w.Header().Get("Content-Type"); got != c.want || w.Code != http.StatusOK {
				t.Errorf("%d %s, want %s", w.Code, got, c.want)
			}
		})
	}
}

func TestGraph_RejectsInvalidQueries(t *testing.T) {
	for name, c := range map[string]struct {
		url  string
		code int
		want string
	}{
		"an unknown format": {"/debug/gc/graph?format=xml", http.StatusBadRequest, "unknown format \"xml\": use format=dot or format=json\n"},
		"an unknown UID":    {"/debug/gc/graph?uid=2&uid=77", http.StatusNotFound, "no object with UID \"77\" in the graph, or no permission to get it\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(t, source(family()...), c.url)
			if diff := cmp.Diff(c.want, w.Body.String()); diff != "" || w.Code != c.code {
				t.Errorf("%d\n%s", w.Code, diff)
			}
		})
	}
}

// G-77: uid= returns the connected components of those UIDs.
func TestGraph_ReturnsComponentsOfUIDs(t *testing.T) {
	objects := append(family(), object(configMap, "other", "7", owner(configMap, "lost", "8")))
	for name, c := range map[string]struct {
		query string
		want  []types.UID
	}{
		"from a dependent":                 {"?uid=3", []types.UID{"2", "3", "4"}},
		"an object without relations":      {"?uid=5", []types.UID{"5"}},
		"an owner that is only referenced": {"?uid=8", []types.UID{"7", "8"}},
		"two of them":                      {"?uid=8&uid=2", []types.UID{"2", "3", "4", "7", "8"}},
		"all with relations":               {"", []types.UID{"2", "3", "4", "7", "8"}},
	} {
		t.Run(name, func(t *testing.T) {
			var dump graph.Dump
			decode(t, get(t, source(objects...), "/debug/gc/graph"+c.query, "Accept", "application/json"), &dump)
			var got []types.UID
			for _, n := range dump.Nodes {
				got = append(got, n.UID)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Empty lists are encoded as [], not null.
func TestJSON_EmptyListsAreNotNull(t *testing.T) {
	for url, want := range map[string]string{
		"/debug/gc/graph?format=json": `{"nodes":[],"edges":[]}`,
		"/debug/gc/records":           `{"items":[]}`,
	} {
		var got json.RawMessage
		decode(t, get(t, source(), url), &got)
		if text := strings.Join(strings.Fields(string(got)), ""); text != want {
			t.Errorf("%s: %s, want %s", url, text, want)
		}
	}
}

func TestSynced(t *testing.T) {
	for name, c := range map[string]struct {
		synced   bool
		unsynced []string
		code     int
		want     string
	}{
		"synced":     {true, nil, http.StatusOK, "ok\n"},
		"not listed": {false, []string{"pods v1", "widgets.example.com v1: forbidden"}, http.StatusServiceUnavailable, "not listed yet:\npods v1\nwidgets.example.com v1: forbidden\n"},
		"no types":   {false, nil, http.StatusServiceUnavailable, "not listed yet:\nno resources discovered yet\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := source()
			s.Synced, s.Unsynced = func() bool { return c.synced }, func() []string { return c.unsynced }
			w := get(t, s, "/debug/gc/synced")
			if diff := cmp.Diff(c.want, w.Body.String()); diff != "" || w.Code != c.code {
				t.Errorf("%d\n%s", w.Code, diff)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	s := source()
	want := Status{Message: "another garbage collector is running"}
	s.Status = func() Status { return want }
	var got Status
	decode(t, get(t, s, "/debug/gc/status"), &got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// allExcept returns a Sight of a client that may not get the named objects.
func allExcept(names ...string) func(*http.Request) ReadAccess {
	return func(*http.Request) ReadAccess {
		return func(o record.Object) bool {
			for _, name := range names {
				if o.Name == name {
					return false
				}
			}
			return true
		}
	}
}

func TestGraph_OmitsForbiddenObjectsAndEdges(t *testing.T) {
	s := source(family()...)
	s.ReadAccess = allExcept("leaving")
	var got graph.Dump
	decode(t, get(t, s, "/debug/gc/graph?format=json"), &got)
	want := graph.Dump{
		Nodes: []graph.DumpNode{
			{UID: "2", State: "seen", APIVersion: "apps/v1", Kind: "Deployment", Namespace: "ns", Name: "web"},
			{UID: "3", State: "seen", APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "settings"},
		},
		Edges: []graph.DumpEdge{{Dependent: "3", Owner: "2", Blocking: true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if dot := get(t, s, "/debug/gc/graph").Body.String(); strings.Contains(dot, "leaving") {
		t.Errorf("shown as DOT:\n%s", dot)
	}
}

func configMapNamed(name string) record.Object {
	return record.Object{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: name, UID: types.UID(name)}
}

func absentOwner(name string) record.Owner {
	return record.Owner{Object: configMapNamed(name), Status: "Absent"}
}

func TestRecords_ShowObjectsTheClientMayGet(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	chain := []record.Link{{Owner: absentOwner("mother"), DeletedReason: "OwnersAbsent"}, {Owner: absentOwner("grandmother"), DeletedReason: "OwnersAbsent"}, {Owner: absentOwner("first")}}
	entry := func(name string) record.Entry {
		return record.Entry{Time: at, Object: configMapNamed(name), Reason: "OwnersAbsent", Action: record.Delete, Detail: "Background", Result: "Done",
			Owners: []record.Owner{absentOwner("mother"), absentOwner("father")}, Chain: chain}
	}
	all := []record.Entry{entry("child"), entry("sister")}
	without := func(change func(*record.Entry)) record.Entry {
		e := entry("child")
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		sight func(*http.Request) ReadAccess
		want  []record.Entry
	}{
		"everything":     {AllowAll, all},
		"all but one":    {allExcept("sister"), all[:1]},
		"nothing":        {allExcept("child", "sister"), []record.Entry{}},
		"no owner":       {allExcept("sister", "father"), []record.Entry{without(func(e *record.Entry) { e.Owners, e.Detail = e.Owners[:1], "" })}},
		"no grandmother": {allExcept("sister", "grandmother"), []record.Entry{without(func(e *record.Entry) { e.Chain, e.Detail = chain[:1], "" })}},
		"no mother": {allExcept("sister", "mother"), []record.Entry{without(func(e *record.Entry) {
			e.Owners, e.Chain, e.Detail = e.Owners[1:], nil, ""
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			s := source()
			s.ReadAccess, s.Records = c.sight, func(types.UID) []record.Entry { return all }
			var got struct{ Items []record.Entry }
			decode(t, get(t, s, "/debug/gc/records"), &got)
			if diff := cmp.Diff(c.want, got.Items); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The entries of an unblocked owner, and of one that waits, name dependents.
func TestRecords_RedactDependents(t *testing.T) {
	s := source()
	s.ReadAccess = allExcept("secret")
	s.Records = func(types.UID) []record.Entry {
		return []record.Entry{
			{Object: configMapNamed("owner"), Action: record.Unblock, Detail: "ConfigMap ns/secret", Error: "unblock owner of configmaps ns/secret: no"},
			{Object: configMapNamed("owner"), Action: record.None, Blockers: []record.Blocker{{Object: configMapNamed("secret")}, {Object: configMapNamed("known")}}},
		}
	}
	if text := get(t, s, "/debug/gc/records").Body.String(); !strings.Contains(text, "known") {
		t.Errorf("not named: %s", text)
	}
	if text := get(t, s, "/debug/gc/records").Body.String(); strings.Contains(text, "secret") {
		t.Errorf("named: %s", text)
	}
}

func TestRecords_SelectByUID(t *testing.T) {
	s, uids := source(), []types.UID{}
	s.Records = func(uid types.UID) []record.Entry {
		uids = append(uids, uid)
		return nil
	}
	get(t, s, "/debug/gc/records?uid=7")
	get(t, s, "/debug/gc/records")
	if diff := cmp.Diff([]types.UID{"7", ""}, uids); diff != "" {
		t.Error(diff)
	}
}

func TestQuote_EscapesForDOT(t *testing.T) {
	for text, want := range map[string]string{
		``: `""`, `a`: `"a"`, `"`: `"\""`, `\`: `"\\"`, "a\nb": `"a\nb"`, `\"`: `"\\\""`, `\n`: `"\\n"`,
	} {
		if got := quote(text); got != want {
			t.Errorf("quote(%s) = %s, want %s", fmt.Sprintf("%q", text), got, want)
		}
	}
}
