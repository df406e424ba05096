// Package debug shows people what the collector knows: the owner graph, which
// types are listed, and what was decided and why.
package debug

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Source is where the shown comes from. All fields but Since are required.
type Source struct {
	Dump     func(...types.UID) graph.Dump
	Unsynced func() []string // the types that are not listed yet, each with the reason
	Synced   func() bool
	Records  func(types.UID) []record.Entry
	Since    func() time.Time // how far back they reach; nil: nobody knows
	Status   func() Status
	Sight    func(*http.Request) Sight
}

// Status is how the collector is doing as a whole.
type Status struct {
	Collecting bool   `json:"collecting"`
	Message    string `json:"message"` // if it is not: why, and what to do

	// CollectorUser is whom the other collector is taken to work as, if there is to be
	// one.
	CollectorUser string `json:"collectorUser,omitempty"`
	Leading       bool   `json:"leading"`             // or else it stands by
	Collector     string `json:"collector,omitempty"` // how it runs: primary or companion
	Version       string `json:"version,omitempty"`

	// Twins are pairs of types that show the same objects, of which one is to be
	// ignored (defect 3.30).
	Twins []string `json:"twins,omitempty"`
}

// Handlers returns the handlers by path.
func Handlers(s Source) map[string]http.Handler {
	handlers := map[string]http.Handler{
		"/debug/gc/graph":   http.HandlerFunc(s.graph),
		"/debug/gc/synced":  http.HandlerFunc(s.synced),
		"/debug/gc/records": http.HandlerFunc(s.records),
		"/debug/gc/status":  http.HandlerFunc(s.status),
	}
	for _, path := range compatiblePaths {
		handlers[path] = http.HandlerFunc(s.compatibleGraph)
	}
	return handlers
}

// graph serves the graph, or with uid= the components of those UIDs, as DOT
// or JSON (G-75 to G-77).
func (s Source) graph(w http.ResponseWriter, r *http.Request) {
	format, err := formatOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	uids := uidsOf(r)
	dump := visible(s.Dump(uids...), s.Sight(r))
	for _, uid := range uids {
		if !slices.ContainsFunc(dump.Nodes, func(n graph.DumpNode) bool { return n.UID == uid }) {
			http.Error(w, fmt.Sprintf("no object with the UID %q that you may get is in the graph", uid), http.StatusNotFound)
			return
		}
	}
	if format == "json" {
		writeJSON(w, dump)
		return
	}
	w.Header().Set("Content-Type", "text/vnd.graphviz")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = WriteDOT(w, dump) // the client has gone: nobody is left to tell
}

func formatOf(r *http.Request) (string, error) {
	switch format := r.URL.Query().Get("format"); format {
	case "json", "dot":
		return format, nil
	case "":
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			return "json", nil
		}
		return "dot", nil
	default:
		return "", fmt.Errorf("no format %q: use format=dot or format=json", format)
	}
}

// visible leaves out what the client may not see, with the edges to it.
func visible(d graph.Dump, sees Sight) graph.Dump {
	shown := map[types.UID]bool{}
	out := graph.Dump{Nodes: []graph.DumpNode{}, Edges: []graph.DumpEdge{}}
	for _, n := range d.Nodes {
		if sees(record.Object{APIVersion: n.APIVersion, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}) {
			shown[n.UID] = true
			out.Nodes = append(out.Nodes, n)
		}
	}
	for _, e := range d.Edges {
		if shown[e.Dependent] && shown[e.Owner] {
			out.Edges = append(out.Edges, e)
		}
	}
	return out
}

// synced answers 200 once every watched type has been listed, and 503 with
// those that have not.
func (s Source) synced(w http.ResponseWriter, _ *http.Request) {
	if s.Synced() {
		fmt.Fprintln(w, "ok")
		return
	}
	missing := s.Unsynced()
	if len(missing) == 0 {
		missing = []string{"no resources are known yet"}
	}
	http.Error(w, "not listed yet:\n"+strings.Join(missing, "\n"), http.StatusServiceUnavailable)
}

func (s Source) status(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Status()) }

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false) // or a document in a record would not be the one that a module was asked with
	_ = encoder.Encode(value)    // the client has gone: nobody is left to tell
}
