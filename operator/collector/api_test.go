package collector_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/gleaner-dev/gleaner/operator/catalog"
)

// api is an API server in memory, without goroutines: a request is answered
// before RoundTrip returns. It writes down what it was asked, and how it
// answered.
type api struct {
	mu sync.Mutex // one request at a time; the barrier makes several

	types   []servedType
	rv      int
	objects map[key]*object
	ended   map[types.UID]*object // by the UID, as they were at their end
	faults  map[string]*fault     // by verb and last word of the path
	meet    func(verb, name string)
	log     func(string)
	counts  map[string]int // of requests, by verb
	reads   int            // by policies
}

type servedType struct {
	schema.GroupVersionResource
	kind          string
	clusterScoped bool
	custom        bool // takes no strategic merge patch
	remote        bool // of an aggregated API server
}

// allTypes are the types that a story begins with.
func allTypes() []servedType {
	core, apps := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "apps", Version: "v1"}
	example, remote := schema.GroupVersion{Group: "example.com", Version: "v1"}, schema.GroupVersion{Group: "remote.dev", Version: "v1"}
	return []servedType{
		{GroupVersionResource: core.WithResource("configmaps"), kind: "ConfigMap"},
		{GroupVersionResource: core.WithResource("nodes"), kind: "Node", clusterScoped: true},
		{GroupVersionResource: core.WithResource("pods"), kind: "Pod"},
		{GroupVersionResource: core.WithResource("secrets"), kind: "Secret"},
		{GroupVersionResource: apps.WithResource("deployments"), kind: "Deployment"},
		{GroupVersionResource: apps.WithResource("replicasets"), kind: "ReplicaSet"},
		{GroupVersionResource: example.WithResource("widgets"), kind: "Widget", custom: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "widgets"}, kind: "Widget", custom: true},
		{GroupVersionResource: remote.WithResource("remotes"), kind: "Remote", remote: true},
	}
}

// key is where an object is, by whatever version.
type key struct {
	schema.GroupResource
	namespace, name string
}

type object struct {
	metav1.PartialObjectMetadata
	key key

	observedGeneration int64 // in its status
}

// fault is how requests are answered instead.
type fault struct {
	with  string
	times int
}

func newAPI(log func(string)) *api {
	return &api{
		types: allTypes(), rv: 100, objects: map[key]*object{}, ended: map[types.UID]*object{},
		faults: map[string]*fault{}, meet: func(string, string) {}, log: log, counts: map[string]int{},
	}
}

// catalog is what discovery tells of the types, the failed group versions aside.
func (a *api) catalog(previous *catalog.Catalog, failed ...string) *catalog.Catalog {
	settings := catalog.Settings{Local: map[schema.GroupVersion]bool{}, Failed: map[schema.GroupVersion]error{}, Previous: previous}
	byVersion := map[schema.GroupVersion]*metav1.APIResourceList{}
	var lists []*metav1.APIResourceList
	for _, t := range a.types {
		gv := t.GroupVersion()
		if slices.Contains(failed, gv.String()) {
			settings.Failed[gv] = errors.New("no answer")
			continue
		}
		settings.Local[gv] = !t.remote
		if byVersion[gv] == nil {
			byVersion[gv] = &metav1.APIResourceList{GroupVersion: gv.String()}
			lists = append(lists, byVersion[gv])
		}
		byVersion[gv].APIResources = append(byVersion[gv].APIResources, metav1.APIResource{
			Name: t.Resource, Kind: t.kind, Namespaced: !t.clusterScoped,
			Verbs: metav1.Verbs{"delete", "get", "list", "patch", "watch"},
		}, metav1.APIResource{Name: t.Resource + "/status", Kind: t.kind, Namespaced: !t.clusterScoped, Verbs: metav1.Verbs{"get", "patch"}})
	}
	return catalog.Build(nil, lists, settings)
}

func (a *api) serves(gvr schema.GroupVersionResource) (servedType, bool) {
	i := slices.IndexFunc(a.types, func(t servedType) bool { return t.GroupVersionResource == gvr })
	if i < 0 {
		return servedType{}, false
	}
	return a.types[i], true
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	gvr, namespace, name := locate(r.URL.Path)
	verb, last := r.Method, name
	if r.Method == http.MethodGet && name == "" {
		verb, last = "LIST", gvr.Resource
	}
	a.counts[verb]++
	a.meet(verb, last)
	how := a.answer(w, verb, gvr, key{gvr.GroupResource(), namespace, name}, r.Header.Get("Content-Type"), body)
	at := strings.TrimSuffix(strings.Join([]string{verb, gvr.GroupVersion().String() + "/" + gvr.Resource, path.Join(namespace, name)}, " "), " ")
	a.log(fmt.Sprintf("%s%s: %d", at, how, w.Code))
	response := w.Result()
	response.Request = r
	return response, nil
}

// locate reads a path: /api/VERSION or /apis/GROUP/VERSION, namespaces/NAMESPACE
// for what is in one, the resource, and the name.
func locate(at string) (gvr schema.GroupVersionResource, namespace, name string) {
	parts := strings.Split(strings.Trim(at, "/"), "/")
	gvr.Version, parts = parts[1], parts[2:]
	if strings.HasPrefix(at, "/apis/") {
		gvr.Group, gvr.Version, parts = gvr.Version, parts[0], parts[1:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		namespace, parts = parts[1], parts[2:]
	}
	gvr.Resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	return gvr, namespace, name
}

// answer answers one request, and returns what there is to say of it in short.
func (a *api) answer(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, at key, contentType string, body []byte) string {
	last, how := at.name, brief(verb, contentType, body)
	if verb == "LIST" {
		last = at.Resource
	}
	if a.faulty(w, verb, last, at) {
		return how
	}
	served, ok := a.serves(gvr)
	if !ok || served.clusterScoped && at.namespace != "" {
		refuse(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "the server could not find the requested resource",
		}})
		return how
	}
	if verb == "LIST" {
		a.list(w, served, at.namespace)
		return ""
	}
	o, ok := a.objects[at]
	if !ok {
		refuse(w, apierrors.NewNotFound(at.GroupResource, at.name))
		return how
	}
	var err *apierrors.StatusError
	switch verb {
	case http.MethodDelete:
		err = a.delete(o, body)
	case http.MethodPatch:
		err = a.patch(o, served, contentType, body)
	}
	if err != nil {
		refuse(w, err)
		return how
	}
	o.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	reply(w, http.StatusOK, o.PartialObjectMetadata)
	return how
}

func (a *api) faulty(w http.ResponseWriter, verb, last string, at key) bool {
	f := a.faults[verb+" "+last]
	if f == nil || f.times == 0 {
		return false
	}
	f.times--
	code, err := strconv.Atoi(f.with)
	switch {
	case f.with == "proxy404":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<h1>404</h1>")
	case f.with == "404": // as good as the real one
		refuse(w, apierrors.NewNotFound(at.GroupResource, at.name))
	case f.with == "409":
		refuse(w, apierrors.NewConflict(at.GroupResource, at.name, errors.New("somebody else was quicker")))
	case err == nil:
		refuse(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: int32(code), Message: http.StatusText(code),
		}})
	}
	return true
}

func (a *api) list(w http.ResponseWriter, t servedType, namespace string) {
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.rv)},
	}
	for _, o := range a.of(t.GroupResource()) {
		if namespace == "" || o.Namespace == namespace {
			list.Items = append(list.Items, o.PartialObjectMetadata)
		}
	}
	reply(w, http.StatusOK, list)
}

// of returns the objects of a type, the oldest change first.
func (a *api) of(gr schema.GroupResource) []*object {
	var found []*object
	for at, o := range a.objects {
		if at.GroupResource == gr {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(x, y *object) int { return versionOf(x) - versionOf(y) })
	return found
}

func versionOf(o *object) int {
	v, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		panic(err)
	}
	return v
}

// delete is what DELETE comes to.
func (a *api) delete(o *object, body []byte) *apierrors.StatusError {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != o.UID || p.ResourceVersion != nil && *p.ResourceVersion != o.ResourceVersion {
			return conflict(o)
		}
	}
	if policy := options.PropagationPolicy; policy != nil {
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool {
			return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
		})
		switch *policy {
		case metav1.DeletePropagationForeground:
			o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			o.Finalizers = append(o.Finalizers, metav1.FinalizerOrphanDependents)
		case metav1.DeletePropagationBackground: // neither
		}
	}
	if o.DeletionTimestamp == nil {
		o.DeletionTimestamp = &metav1.Time{Time: beginning}
		o.Generation++
	}
	a.changed(o)
	return nil
}

// changed gives an object its next resourceVersion, and lets it go if nothing
// holds it any more.
func (a *api) changed(o *object) {
	a.rv++
	o.ResourceVersion = strconv.Itoa(a.rv)
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 {
		delete(a.objects, o.key)
		a.ended[o.UID] = o
	}
}

// patch is what PATCH comes to.
func (a *api) patch(o *object, t servedType, contentType string, body []byte) *apierrors.StatusError {
	before := encode(o.PartialObjectMetadata)
	var (
		after []byte
		err   error
	)
	switch {
	case contentType == string(types.MergePatchType):
		after, err = mergePatch(before, body)
	case contentType == string(types.StrategicMergePatchType) && !t.custom:
		after, err = strategicpatch.StrategicMergePatch(before, body, metav1.PartialObjectMetadata{})
	default:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		}}
	}
	var patched metav1.PartialObjectMetadata
	if err = errors.Join(err, json.Unmarshal(after, &patched)); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if patched.ResourceVersion != o.ResourceVersion {
		return conflict(o)
	}
	if patched.UID != o.UID {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: "metadata.uid", Message: "field is immutable"}}},
		}}
	}
	if string(encode(patched)) != string(before) {
		o.PartialObjectMetadata = patched
		a.changed(o)
	}
	return nil
}

func mergePatch(before, patch []byte) ([]byte, error) {
	var b, p map[string]any
	if err := errors.Join(json.Unmarshal(before, &b), json.Unmarshal(patch, &p)); err != nil {
		return nil, err
	}
	return json.Marshal(merged(b, p))
}

// merged is RFC 7386.
func merged(target, patch map[string]any) map[string]any {
	out := maps.Clone(target)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range patch {
		if nested, ok := v.(map[string]any); ok {
			below, _ := out[k].(map[string]any)
			out[k] = merged(below, nested)
			continue
		}
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

func conflict(o *object) *apierrors.StatusError {
	return apierrors.NewConflict(o.key.GroupResource, o.Name, errors.New("the object has been modified"))
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	s := err.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	reply(w, int(s.Code), s)
}

func reply(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(encode(value))
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
