package gather_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

var (
	configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	pod       = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	node      = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
	widget    = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	widgetOld = schema.GroupVersionKind{Group: "example.com", Version: "v0", Kind: "Widget"}
	remote    = schema.GroupVersionKind{Group: "remote.example.com", Version: "v1", Kind: "Remote"}
	unknown   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
)

const (
	mapPath    = "/api/v1/namespaces/ns/configmaps/owner"
	nodePath   = "/api/v1/nodes/owner"
	remotePath = "/apis/remote.example.com/v1/namespaces/ns/remotes/owner"
	podList    = "/api/v1/namespaces/ns/pods"
)

// discovered is the response of discovery: core types, a custom resource, and the type of an
// aggregated API server.
func discovered() []*metav1.APIResourceList {
	verbs := metav1.Verbs{"delete", "get", "list", "patch", "watch"}
	resource := func(name, kind string, namespaced bool) metav1.APIResource {
		return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: verbs}
	}
	return []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			resource("configmaps", "ConfigMap", true), resource("pods", "Pod", true), resource("nodes", "Node", false),
		}},
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{resource("widgets", "Widget", true)}},
		{GroupVersion: "remote.example.com/v1", APIResources: []metav1.APIResource{resource("remotes", "Remote", true)}},
	}
}

var local = map[schema.GroupVersion]bool{{Version: "v1"}: true, widget.GroupVersion(): true}

func served() *catalog.Catalog {
	lists := discovered()
	return catalog.Build(nil, lists, catalog.Settings{Local: local})
}

// apiServer is a fake API server with configurable responses. By default it responds that there
// is no such object.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex // covers what follows
	answers  map[string]http.HandlerFunc
	received []string
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{answers: map[string]http.HandlerFunc{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.received = append(a.received, r.URL.RequestURI())
	response, handler := a.answers[r.URL.Path]
	a.mu.Unlock()
	if !handler {
		response = notFound(r.URL.Path)
	}
	response(w, r)
}

func (a *apiServer) answer(path string, h http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[path] = h
}

// requests returns the requests since the last call.
func (a *apiServer) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	received := a.received
	a.received = nil
	return received
}

func (a *apiServer) client(t *testing.T) metadata.Interface {
	t.Helper()
	client, err := metadata.NewForConfig(&rest.Config{Host: a.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// notFound is a kube-apiserver's 404 for an object at a path.
func notFound(at string) http.HandlerFunc {
	parts := strings.Split(strings.Trim(at, "/"), "/")
	group := schema.GroupResource{Resource: path.Base(path.Dir(at))}
	if parts[0] == "apis" {
		group.Group = parts[1]
	}
	return status(apierrors.NewNotFound(group, path.Base(at)))
}

func status(err *apierrors.StatusError) http.HandlerFunc {
	s := err.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return body(int(s.Code), "application/json", encode(&s))
}

func cachedRead(o *metav1.PartialObjectMetadata) http.HandlerFunc {
	o.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	return body(http.StatusOK, "application/json", encode(o))
}

func page(next string, items ...*metav1.PartialObjectMetadata) http.HandlerFunc {
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{Continue: next, ResourceVersion: "90"},
	}
	for _, o := range items {
		list.Items = append(list.Items, *o)
	}
	return body(http.StatusOK, "application/json", encode(&list))
}

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func body(code int, contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(text))
	}
}

// meta is an object's metadata as a read answers it.
func meta(namespace, name, uid string, finalizers ...string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(uid), ResourceVersion: "70", Finalizers: finalizers,
	}}
	if len(finalizers) != 0 {
		o.DeletionTimestamp = &metav1.Time{Time: start}
	}
	return o
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is a clock that only advances by pass.
type clock struct {
	mu sync.Mutex // covers t
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// fixedGraph is a graph with fixed views.
type fixedGraph map[graph.ID]graph.View

func (g fixedGraph) Lookup(id graph.ID) (graph.View, bool) {
	v, ok := g[id]
	return v, ok
}

func (g fixedGraph) Cycle(graph.ID) (graph.Edge, bool) { return graph.Edge{}, false }

func (g fixedGraph) IsHeldTerminating(id graph.ID) bool {
	return g[id].Object.Held && g[id].Object.Terminating
}

func (g fixedGraph) Owners(id graph.ID, yield func(graph.ID) bool) {
	for _, ref := range g[id].Object.Owners {
		if !yield(graph.IDOf(ref.UID)) {
			return
		}
	}
}

// locked is a graph behind a lock.
type locked struct {
	mu sync.Mutex // covers g
	g  *graph.Graph
}

func (r *locked) Lookup(id graph.ID) (graph.View, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.g.Lookup(id)
}

func (r *locked) Cycle(id graph.ID) (graph.Edge, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.g.Cycle(id)
}

func (r *locked) IsHeldTerminating(id graph.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.g.IsHeldTerminating(id)
}

func (r *locked) Owners(id graph.ID, yield func(graph.ID) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.g.Owners(id, yield)
}

func (r *locked) apply(events ...graph.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		r.g.Apply(e, nil)
	}
}

// fixture is a Gatherer with all that it works on.
type fixture struct {
	*gather.Gatherer
	api      *apiServer
	clock    *clock
	observed *[]graph.Event
	serves   func() (bool, error) // the response of discovery for any type

	absent bool // whether types that the catalog lacks are really absent
}

func newFixture(t *testing.T, g gather.Graph, observe func(...graph.Event)) *fixture {
	w := &fixture{api: newAPIServer(t), clock: &clock{t: start}, observed: new([]graph.Event)}
	w.serves = func() (bool, error) { return true, nil }
	var mu sync.Mutex // covers learnt
	all := func(events ...graph.Event) {
		mu.Lock()
		*w.observed = append(*w.observed, events...)
		mu.Unlock()
		observe(events...)
	}
	client := w.api.client(t)
	w.Gatherer = &gather.Gatherer{
		Graph: g, Catalog: served,
		Reader:  gather.NewReader(client, w.askDiscovery, w.clock.now),
		Barrier: gather.NewBarrier(g, gather.Sources{Catalog: served, Absent: func(context.Context, schema.GroupKind) (bool, error) { return w.absent, nil }}, client, all, w.clock.now),
		Observe: all, Now: w.clock.now,
	}
	return w
}

func noOwner(...graph.Event) {}

// reference is one to an owner named owner, with the UID owner.
func reference(kind schema.GroupVersionKind) metav1.OwnerReference {
	apiVersion, name := kind.ToAPIVersionAndKind()
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: name, Name: "owner", UID: "owner"}
}

// child is an object with references, by UID.
func child(uid, namespace string, refs ...metav1.OwnerReference) graph.Object {
	return graph.Object{
		UID: types.UID(uid), Kind: pod, Namespace: namespace, Name: uid, ResourceVersion: "50", Owners: refs,
	}
}

func id(uid string) graph.ID { return graph.IDOf(types.UID(uid)) }

// one has a Gatherer gather facts about an object with a single owner.
func one(t *testing.T, w *fixture, uid string) decide.Owner {
	t.Helper()
	facts, ok := w.Gather(t.Context(), id(uid))
	if !ok || len(facts.Owners) != 1 {
		t.Fatalf("no facts about one owner of %s: %+v", uid, facts)
	}
	return facts.Owners[0]
}
