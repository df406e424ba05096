// Package debug serves the debug endpoints: the owner graph, the types that are synced,
// decision records and the status.
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

// A Source provides the data to serve. All fields but RecordsSince and Stored are required.
type Source struct {
	Dump         func(...types.UID) graph.Dump
	Unsynced     func() []string // types that are not listed yet, each with the reason
	Synced       func() bool
	Records      func(types.UID) []record.Entry
	RecordsSince func() time.Time // start of Records; nil: unknown
	Stored       record.Reader    // records that are stored, also those from before a restart; nil: none are
	Status       func() Status
	Cascades     func() Cascades
	Queue        func() Queue
	ReadAccess   func(*http.Request) ReadAccess
}

// Status is the status of the collector.
type Status struct {
	Collecting bool   `json:"collecting"`
	Message    string `json:"message"` // if not collecting: why, and what to do

	// CollectorUser is the user name of the built-in garbage collector, in companion mode.
	CollectorUser string `json:"collectorUser,omitempty"`
	Leading       bool   `json:"leading"`             // false: standby
	Collector     string `json:"collector,omitempty"` // mode: primary or companion
	Version       string `json:"version,omitempty"`

	// Paused says what is paused in the whole cluster, or why that is not known.
	Paused []string `json:"paused,omitempty"`

	// EquivalentResources are pairs of equivalent resources, of which one should be ignored (defect 3.30).
	EquivalentResources []string `json:"equivalentResources,omitempty"`
}

// Handlers returns the handlers by path.
func Handlers(s Source) map[string]http.Handler {
	handlers := map[string]http.Handler{
		"/debug/gc/graph":    http.HandlerFunc(s.graph),
		"/debug/gc/synced":   http.HandlerFunc(s.synced),
		"/debug/gc/records":  http.HandlerFunc(s.records),
		"/debug/gc/status":   http.HandlerFunc(s.status),
		"/debug/gc/cascades": http.HandlerFunc(s.cascades),
		"/debug/gc/queue":    http.HandlerFunc(s.queue),
	}
	for _, path := range compatiblePaths {
		handlers[path] = http.HandlerFunc(s.compatibleGraph)
	}
	return handlers
}

// graph serves the graph, or with uid= the connected components of those UIDs, as DOT
// or JSON (G-75 to G-77).
func (s Source) graph(w http.ResponseWriter, r *http.Request) {
	format, err := parseFormat(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	uids := parseUIDs(r)
	dump := filterGraph(s.Dump(uids...), s.ReadAccess(r))
	for _, uid := range uids {
		if !slices.ContainsFunc(dump.Nodes, func(n graph.DumpNode) bool { return n.UID == uid }) {
			http.Error(w, fmt.Sprintf("no object with UID %q in the graph, or no permission to get it", uid), http.StatusNotFound)
			return
		}
	}
	if format == "json" {
		writeJSON(w, dump)
		return
	}
	w.Header().Set("Content-Type", "text/vnd.graphviz")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = WriteDOT(w, dump) // the client has disconnected
}

func parseFormat(r *http.Request) (string, error) {
	switch format := r.URL.Query().Get("format"); format {
	case "json", "dot":
		return format, nil
	case "":
		if strings.Contains(r.Header.Get("Accept"), "application/json") {
			return "json", nil
		}
		return "dot", nil
	default:
		return "", fmt.Errorf("unknown format %q: use format=dot or format=json", format)
	}
}

// filterGraph returns the dump without the objects that the client may not get.
func filterGraph(d graph.Dump, canRead ReadAccess) graph.Dump {
	included := map[types.UID]bool{}
	out := graph.Dump{Nodes: []graph.DumpNode{}, Edges: []graph.DumpEdge{}}
	for _, n := range d.Nodes {
		if canRead(record.Object{APIVersion: n.APIVersion, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}) {
			included[n.UID] = true
			out.Nodes = append(out.Nodes, n)
		}
	}
	for _, e := range d.Edges {
		if included[e.Dependent] && included[e.Owner] {
			out.Edges = append(out.Edges, e)
		}
	}
	return out
}

// synced responds with 200 if every watched type has been listed, and else with 503 and the
// missing types.
func (s Source) synced(w http.ResponseWriter, _ *http.Request) {
	if s.Synced() {
		fmt.Fprintln(w, "ok")
		return
	}
	missing := s.Unsynced()
	if len(missing) == 0 {
		missing = []string{"no resources discovered yet"}
	}
	http.Error(w, "not listed yet:\n"+strings.Join(missing, "\n"), http.StatusServiceUnavailable)
}

func (s Source) status(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Status()) }

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false) // documents in records must equal those that the module received
	_ = encoder.Encode(value)    // the client has disconnected
}
