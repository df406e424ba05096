package watch

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// apiServer is a fake API server with what a Watcher needs: unaggregated discovery, lists, watches
// and streamed lists of metadata. put and remove change its objects.
type apiServer struct {
	*httptest.Server
	listener *listener

	mu             sync.Mutex // covers what follows
	versions       []schema.GroupVersion
	types          map[schema.GroupVersion][]metav1.APIResource
	objects        map[schema.GroupResource]map[string]*metav1.PartialObjectMetadata
	watches        map[*apiWatch]struct{}
	version        int
	answers        map[string]int // status codes by path, or by request as in asked
	requested      map[string]int // requests by path, "watch " and "stream " before it
	ignoresWatches bool           // streamed lists are taken for watches
	noStream       bool           // streamed lists are refused
}

type apiWatch struct {
	resource schema.GroupResource
	events   chan metav1.WatchEvent
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{
		listener:  newListener(),
		types:     map[schema.GroupVersion][]metav1.APIResource{},
		objects:   map[schema.GroupResource]map[string]*metav1.PartialObjectMetadata{},
		watches:   map[*apiWatch]struct{}{},
		version:   100,
		answers:   map[string]int{},
		requested: map[string]int{},
	}
	a.Server = httptest.NewUnstartedServer(a)
	a.Listener.Close()
	a.Listener = a.listener
	a.Start()
	t.Cleanup(a.Close)
	return a
}

// serve adds resources to a version. The first version of a group is its
// preferred one.
func (a *apiServer) serve(gv schema.GroupVersion, resources ...metav1.APIResource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.types[gv]; !known {
		a.versions = append(a.versions, gv)
	}
	a.types[gv] = append(a.types[gv], resources...)
}

// stopServing removes a version. Open watches stay open, as they do for a while after a
// CustomResourceDefinition is deleted.
func (a *apiServer) stopServing(gv schema.GroupVersion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.types, gv)
	a.versions = slices.DeleteFunc(a.versions, func(v schema.GroupVersion) bool { return v == gv })
}

// hangTimeout is used instead of a status code for a request without a response.
const hangTimeout = -1

// answer sets the status code of the responses for a path, or "watch " and a path; 0 resets
// it.
func (a *apiServer) answer(path string, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answers[path] = code
}

func (a *apiServer) count(request string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requested[request]
}

func (a *apiServer) openWatches(resource schema.GroupResource) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for w := range a.watches {
		if w.resource == resource {
			n++
		}
	}
	return n
}

// put creates or changes an object.
func (a *apiServer) put(resource schema.GroupResource, o *metav1.PartialObjectMetadata) {
	a.mu.Lock()
	defer a.mu.Unlock()
	byName := a.objects[resource]
	if byName == nil {
		byName = map[string]*metav1.PartialObjectMetadata{}
		a.objects[resource] = byName
	}
	kind := "ADDED"
	if _, known := byName[o.Namespace+"/"+o.Name]; known {
		kind = "MODIFIED"
	}
	byName[o.Namespace+"/"+o.Name] = o
	a.sendEvent(resource, kind, o)
}

// remove deletes an object.
func (a *apiServer) remove(resource schema.GroupResource, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[resource][key]
	delete(a.objects[resource], key)
	a.sendEvent(resource, "DELETED", o)
}

// dropWatches deletes an object without events, and ends the watches.
func (a *apiServer) dropWatches(resource schema.GroupResource, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	delete(a.objects[resource], key)
	for w := range a.watches {
		if w.resource == resource {
			gone := metav1.Status{Status: "Failure", Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old"}
			gone.Kind, gone.APIVersion = "Status", "v1"
			w.events <- event("ERROR", &gone)
		}
	}
}

func (a *apiServer) sendEvent(resource schema.GroupResource, kind string, o *metav1.PartialObjectMetadata) {
	a.version++
	o = o.DeepCopy()
	o.ResourceVersion = strconv.Itoa(a.version)
	if kind != "DELETED" {
		a.objects[resource][o.Namespace+"/"+o.Name] = o
	}
	for w := range a.watches {
		if w.resource == resource {
			w.events <- event(kind, o)
		}
	}
}

func event(kind string, o any) metav1.WatchEvent {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		m.Kind, m.APIVersion = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	e := metav1.WatchEvent{Type: kind}
	e.Object.Raw = raw
	return e
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	query := r.URL.Query()
	streamed := query.Get("sendInitialEvents") == "true"
	request := r.URL.Path
	if streamed {
		request = "stream " + request
	} else if query.Get("watch") != "" {
		request = "watch " + request
	}
	a.requested[request]++
	code := cmp.Or(a.answers[request], a.answers[r.URL.Path])
	if streamed && a.noStream {
		code = http.StatusUnprocessableEntity
	}
	a.mu.Unlock()
	if code == hangTimeout {
		<-r.Context().Done()
		return
	}
	if code != 0 {
		http.Error(w, "refused by the test", code)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv := schema.GroupVersion{}
	switch {
	case parts[0] == "api" && len(parts) > 1:
		gv.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 2:
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	case parts[0] == "apis" && len(parts) == 2:
		a.serveGroup(w, parts[1])
		return
	default:
		a.serveGroups(w, parts[0] == "api")
		return
	}
	resource := schema.GroupResource{Group: gv.Group, Resource: strings.Join(parts, "/")}
	switch {
	case len(parts) == 0:
		a.serveTypes(w, gv)
	case query.Get("watch") != "":
		a.serveWatch(w, r, resource, streamed)
	default:
		a.serveList(w, resource)
	}
}

func (a *apiServer) serveGroups(w http.ResponseWriter, core bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if core {
		versions := metav1.APIVersions{}
		if _, ok := a.types[schema.GroupVersion{Version: "v1"}]; ok {
			versions.Versions = []string{"v1"}
		}
		reply(w, versions)
		return
	}
	reply(w, metav1.APIGroupList{Groups: a.groups()})
}

func (a *apiServer) serveGroup(w http.ResponseWriter, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	groups := a.groups()
	at := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == name })
	if at < 0 {
		http.NotFound(w, nil)
		return
	}
	reply(w, groups[at])
}

// groups returns all groups except the core group.
func (a *apiServer) groups() (groups []metav1.APIGroup) {
	for _, gv := range a.versions {
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		at := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
		switch {
		case gv.Group == "":
		case at >= 0:
			groups[at].Versions = append(groups[at].Versions, v)
		default:
			groups = append(groups, metav1.APIGroup{
				Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
			})
		}
	}
	return groups
}

func (a *apiServer) serveTypes(w http.ResponseWriter, gv schema.GroupVersion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resources, ok := a.types[gv]
	if !ok {
		http.NotFound(w, nil)
		return
	}
	reply(w, metav1.APIResourceList{GroupVersion: gv.String(), APIResources: resources})
}

func (a *apiServer) serveList(w http.ResponseWriter, resource schema.GroupResource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := metav1.PartialObjectMetadataList{}
	list.Kind, list.APIVersion = "PartialObjectMetadataList", "meta.k8s.io/v1"
	list.ResourceVersion = strconv.Itoa(a.version)
	for _, o := range a.objects[resource] {
		list.Items = append(list.Items, *o)
	}
	reply(w, list)
}

func (a *apiServer) serveWatch(w http.ResponseWriter, r *http.Request, resource schema.GroupResource, streamed bool) {
	a.mu.Lock()
	watch := &apiWatch{resource: resource, events: make(chan metav1.WatchEvent, 4096)}
	a.watches[watch] = struct{}{}
	if streamed && !a.ignoresWatches {
		for _, o := range slices.Collect(maps.Values(a.objects[resource])) {
			watch.events <- event("ADDED", o)
		}
		end := &metav1.PartialObjectMetadata{}
		end.ResourceVersion = strconv.Itoa(a.version)
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		watch.events <- event("BOOKMARK", end)
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watches, watch)
		a.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for {
		_ = flush.Flush()
		select {
		case <-r.Context().Done():
			return
		case e := <-watch.events:
			_ = json.NewEncoder(w).Encode(e)
			if e.Type == "ERROR" {
				return
			}
		}
	}
}

func reply(w http.ResponseWriter, response any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(response)
}

// object returns an object with many fields that the graph does not keep.
func object(namespace, name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name),
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}}
}

// clients returns clients of the server. They have the HTTP client in common.
func (a *apiServer) clients(t *testing.T) (discovery.DiscoveryInterface, metadata.Interface, *http.Client) {
	t.Helper()
	config := &rest.Config{Host: a.URL, QPS: -1}
	client := &http.Client{Transport: &http.Transport{DialContext: a.listener.dial}}
	types, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	objects, metadataErr := metadata.NewForConfigAndClient(config, client)
	if err := errors.Join(err, metadataErr); err != nil {
		t.Fatal(err)
	}
	return types, objects, client
}
