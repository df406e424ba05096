// Package server answers requests for the pages of the web UI.
//
// What pages show is read when it is asked for, through Sources, with the permissions of one user. Nothing else is read, and only
// Actions write. Each request has a time limit, and few are worked on at the same time.
package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/explain"
	"github.com/gleaner-dev/gleaner/internal/cli/governed"
	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/internal/cli/stuck"
	"github.com/gleaner-dev/gleaner/internal/ui/page"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const (
	requestLimit = 2 * time.Minute // for all that a page reads
	maxAtOnce    = 4               // requests that read the cluster
	maxLive      = 16              // event streams
	liveInterval = 2 * time.Second // between two reads for an event stream
	maxForm      = 64 << 10        // bytes of a form
	maxUpload    = 65 << 20        // bytes of a form with a module
)

// Sources read what pages show, with the permissions of one user. With files, those that need a cluster are nil.
type Sources struct {
	From      string // a context of the kubeconfig, or files
	User      string // that is logged in; empty: who started the program
	Namespace string // that pages show first; empty: all
	Files     bool

	Namespaces func(context.Context) []string // those to select from; empty: unknown

	// Graph reads the owners and dependents in a namespace (all, if it is empty), or of a target, such as Deployment/web.
	// The result is shared, and says when it was read.
	Graph func(ctx context.Context, namespace, target string) (*ownership.Ownership, time.Time, error)

	// Preview simulates the deletion of an object in a namespace, or of a cluster-scoped one. With several users it is nil, since it
	// fetches and evaluates the modules of policies here.
	Preview func(ctx context.Context, namespace string, uid types.UID, cascade string) (*page.Preview, error)

	Stuck     func(ctx context.Context, namespace string, longerThan time.Duration) (stuck.Report, error)
	Object    func(ctx context.Context, kind, namespace, name string, uid types.UID) (explain.Explanation, error)
	Records   func(context.Context, replicas.Selection) (replicas.Records, error)
	Now       func(context.Context) (page.Now, error)
	Resources func(context.Context) (all []*unstructured.Unstructured, installed bool, unread []string, err error)

	// Governed counts the objects that policies and other resources select, by the UIDs of those.
	Governed func(context.Context, []*unstructured.Unstructured) (map[types.UID]governed.Count, error)

	// Archive lists archived objects, the newest first, and Archived reads one.
	Archive  func(ctx context.Context, q archive.Query, limit int) (entries []archive.Header, more bool, err error)
	Archived func(ctx context.Context, id string) (page.Archived, error)

	// Decision reads a decision with the requests and verdicts of its modules.
	Decision func(ctx context.Context, uid types.UID, at time.Time) (record.Entry, error)

	// TestCase returns a decision as a case of gleaner test, and its file name.
	TestCase func(ctx context.Context, uid types.UID, at time.Time) (name string, data []byte, err error)

	// Replay evaluates a module on a decision, and returns the difference. With several users it is nil, since it runs here.
	Replay func(ctx context.Context, uid types.UID, at time.Time, name string, module []byte) (text string, err error)

	Actions
}

// Actions write to the cluster, as the user. Without them, pages have no buttons for it.
type Actions struct {
	Pause  func(ctx context.Context, namespace, reason string, lasts time.Duration) (done string, err error)
	Resume func(ctx context.Context, namespace, name string) (done string, err error)

	// Restore restores an archived object and everything below it, or tries to, and returns what was done.
	Restore func(ctx context.Context, uid types.UID, dryRun bool) (text string, err error)
}

// Server is the handler of all pages.
type Server struct {
	sources func(*http.Request) *Sources
	now     func() time.Time
	slots   chan struct{}
	live    chan struct{}
	mux     *http.ServeMux
}

// New returns a Server. The sources are those of who sent a request.
func New(sources func(*http.Request) *Sources, now func() time.Time) *Server {
	s := &Server{sources: sources, now: now, slots: make(chan struct{}, maxAtOnce), live: make(chan struct{}, maxLive), mux: http.NewServeMux()}
	s.mux.Handle("GET /static/", Static())
	for path, show := range map[string]handler{
		"/{$}": s.showNow, "/graph": s.showGraph, "/stuck": s.showStuck, "/decisions": s.showDecisions, "/policies": s.showPolicies, "/object": s.showObject, "/archive": s.showArchive,
		"/archive/entry": s.showArchived,
	} {
		s.mux.Handle("GET "+path, s.limited(show))
	}
	s.mux.Handle("GET /decisions/test", s.limited(s.download))
	s.mux.Handle("GET /decisions/replay", s.limited(s.showReplay))
	s.mux.Handle("POST /decisions/replay", s.limitedTo(maxUpload, s.replay))
	s.mux.Handle("POST /archive/restore", s.limited(s.restore))
	s.mux.Handle("POST /pause", s.limited(s.pause))
	s.mux.Handle("POST /resume", s.limited(s.resume))
	s.mux.HandleFunc("GET /live/now", s.stream)
	s.mux.Handle("/", s.limited(func(w http.ResponseWriter, r *http.Request, from *Sources) error {
		return s.write(w, r, from, http.StatusNotFound, page.Frame{Title: "Not found"}, page.Message{Heading: "Not found", Text: "There is no such page. Select one above."})
	}))
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Static serves the stylesheet, the scripts and the icon of pages, below /static/.
func Static() http.Handler {
	files := http.StripPrefix("/static/", http.FileServerFS(page.Static()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-cache") // kept, and asked for again
		files.ServeHTTP(w, r)
	})
}

// handler shows a page. An error means that it could not be rendered.
type handler func(http.ResponseWriter, *http.Request, *Sources) error

// limited returns a handler that waits until few others work, and has limited time.
func (s *Server) limited(show handler) http.Handler { return s.limitedTo(maxForm, show) }

func (s *Server) limitedTo(bytes int64, show handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
		defer cancel()
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-ctx.Done():
			http.Error(w, "other requests take too long: try again later", http.StatusServiceUnavailable)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, bytes)
		if err := show(w, r.WithContext(ctx), s.sources(r)); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// write writes a page with its frame.
func (s *Server) write(w http.ResponseWriter, r *http.Request, from *Sources, code int, f page.Frame, v page.View) error {
	f.Path, f.From, f.Files, f.User = r.URL.Path, from.From, from.Files, from.User
	if f.At.IsZero() {
		f.At = s.now()
	}
	var b bytes.Buffer
	if err := page.Render(&b, f, v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = b.WriteTo(w) // the browser is gone
	return nil
}

// namespaceOf returns the selected namespace; "" for all.
func namespaceOf(r *http.Request, from *Sources) string {
	switch namespace := r.URL.Query().Get("namespace"); {
	case namespace == "*":
		return ""
	case namespace == "" && !r.URL.Query().Has("namespace"):
		return from.Namespace
	default:
		return namespace
	}
}

// frame returns the frame of a page about a namespace.
func (s *Server) frame(r *http.Request, from *Sources, title string) page.Frame {
	f := page.Frame{Title: title, Namespace: namespaceOf(r, from)}
	if from.Namespaces != nil {
		f.Namespaces = from.Namespaces(r.Context())
	}
	if f.Namespace != "" && !slices.Contains(f.Namespaces, f.Namespace) {
		f.Namespaces = append(slices.Clone(f.Namespaces), f.Namespace)
		slices.Sort(f.Namespaces)
	}
	return f
}

func (s *Server) showGraph(w http.ResponseWriter, r *http.Request, from *Sources) error {
	q, f := page.ParseGraphQuery(r.URL.Query()), s.frame(r, from, "Graph")
	q.Namespace = r.URL.Query().Get("namespace")
	o, at, err := from.Graph(r.Context(), f.Namespace, q.Target)
	if err != nil {
		return s.write(w, r, from, http.StatusOK, f, page.Graph{Query: q, Failed: err.Error()})
	}
	var p *page.Preview
	if q.Delete != "" && from.Preview != nil {
		if p, err = from.Preview(r.Context(), f.Namespace, q.Delete, q.Cascade); err != nil {
			p = &page.Preview{Failed: err.Error()}
		}
	}
	f.At = at
	o = o.Clone()
	o.Limit(ownership.Limits{Depth: q.Depth})
	g := page.NewGraph(o, q, p)
	g.CanPreview = from.Preview != nil
	return s.write(w, r, from, http.StatusOK, f, g)
}

func (s *Server) showStuck(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Stuck == nil {
		return s.needsCluster(w, r, from)
	}
	f, v := s.frame(r, from, "Stuck"), page.Stuck{LongerThan: r.URL.Query().Get("longer-than")}
	than, err := time.ParseDuration(v.LongerThan)
	if err != nil || than < 0 {
		v.LongerThan, than = "5m", 5*time.Minute
	}
	if v.Report, err = from.Stuck(r.Context(), f.Namespace, than); err != nil {
		v.Failed = err.Error()
	}
	return s.write(w, r, from, http.StatusOK, f, v)
}

func (s *Server) showDecisions(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Records == nil {
		return s.needsCluster(w, r, from)
	}
	f, v := s.frame(r, from, "Decisions"), page.Decisions{Query: page.ParseDecisionQuery(r.URL.Query())}
	v.Query.Namespace = f.Namespace
	var err error
	if v.Records, err = from.Records(r.Context(), v.Query.Selection(s.now())); err != nil {
		v.Failed = err.Error()
	}
	return s.write(w, r, from, http.StatusOK, f, v)
}

func (s *Server) showPolicies(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Resources == nil {
		return s.needsCluster(w, r, from)
	}
	f := page.Frame{Title: "Policies"}
	all, installed, unread, err := from.Resources(r.Context())
	var counts map[types.UID]governed.Count
	counted := r.URL.Query().Get("count") == "yes"
	if counted && err == nil && len(all) != 0 {
		var problem error
		if counts, problem = from.Governed(r.Context(), all); problem != nil {
			unread = append(unread, "objects, which were to be counted: "+problem.Error())
		}
	}
	v := page.NewPolicies(page.GroupResources(all, counts), installed, unread)
	v.Counted = counted
	if err != nil {
		v.Failed = err.Error()
	}
	return s.write(w, r, from, http.StatusOK, f, v)
}

func (s *Server) showObject(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Object == nil {
		return s.needsCluster(w, r, from)
	}
	q := r.URL.Query()
	f, v := page.Frame{Title: q.Get("kind") + "/" + q.Get("name")}, page.Object{}
	var err error
	v.Explanation, err = from.Object(r.Context(), q.Get("kind"), q.Get("namespace"), q.Get("name"), types.UID(q.Get("uid")))
	if err != nil {
		v.Failed = err.Error()
	}
	return s.write(w, r, from, http.StatusOK, f, v)
}

// needsCluster says that a page has nothing to show with files.
func (s *Server) needsCluster(w http.ResponseWriter, r *http.Request, from *Sources) error {
	return s.write(w, r, from, http.StatusNotFound, page.Frame{Title: "Not available"},
		page.Message{Heading: "Not available with files", Text: "This page needs a cluster: run gleaner ui without -f."})
}

// download writes a decision as a test case.
func (s *Server) download(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.TestCase == nil {
		return s.needsCluster(w, r, from)
	}
	at, err := time.Parse(time.RFC3339Nano, r.URL.Query().Get("time"))
	var name string
	var data []byte
	if err == nil {
		name, data, err = from.TestCase(r.Context(), types.UID(r.URL.Query().Get("uid")), at)
	}
	if err != nil {
		return s.write(w, r, from, http.StatusNotFound, page.Frame{Title: "No test case"}, page.Message{Heading: "No test case", Text: err.Error()})
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = io.Copy(w, bytes.NewReader(data)) // the browser is gone
	return nil
}

var errNoActions = errors.New("these pages are read-only: use gleaner pause, gleaner resume and gleaner restore")
