package finalizers

import (
	"encoding/json"
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
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// fakeAPI is a fake API server: writes must match the UID and resourceVersion of the object,
// and an object that is being deleted disappears with its last finalizer. Responses can be
// overridden.
type fakeAPI struct {
	*httptest.Server

	mu       sync.Mutex // protects the fields below
	objects  map[string]*unstructured.Unstructured
	version  int
	requests []string // methods and paths
	override func(*http.Request) http.HandlerFunc
}

func newFakeAPI(t testing.TB) *fakeAPI {
	a := &fakeAPI{objects: map[string]*unstructured.Unstructured{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *fakeAPI) config() *rest.Config { return &rest.Config{Host: a.URL, QPS: -1} }

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r.Method+" "+r.URL.Path)
	override := a.override
	a.mu.Unlock()
	if override != nil {
		if handler := override(r); handler != nil {
			handler(w, r)
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o, exists := a.objects[r.URL.Path]
	switch {
	case !exists && !strings.HasSuffix(r.URL.Path, "s"):
		notFoundResponse(r.URL.Path)(w, r)
	case !exists:
		a.list(w, r)
	case r.Method == http.MethodPatch:
		a.patch(w, r, o)
	default:
		respond(w, r, o)
	}
}

func (a *fakeAPI) list(w http.ResponseWriter, r *http.Request) {
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for _, at := range slices.Sorted(maps.Keys(a.objects)) {
		if path.Base(path.Dir(at)) == path.Base(r.URL.Path) {
			list.Items = append(list.Items, *metaOf(a.objects[at]))
		}
	}
	jsonResponse(http.StatusOK, &list)(w, r)
}

func (a *fakeAPI) patch(w http.ResponseWriter, r *http.Request, o *unstructured.Unstructured) {
	text, _ := io.ReadAll(r.Body)
	var patch map[string]any
	if err := json.Unmarshal(text, &patch); err != nil {
		panic(err)
	}
	wanted, _ := patch["metadata"].(map[string]any)
	if wanted["uid"] != string(o.GetUID()) || wanted["resourceVersion"] != o.GetResourceVersion() {
		conflict(w, r)
		return
	}
	o = &unstructured.Unstructured{Object: mergePatch(o.DeepCopy().Object, patch)}
	a.put(r.URL.Path, o)
	respond(w, r, o)
}

// put stores an object with the next resourceVersion.
func (a *fakeAPI) put(at string, o *unstructured.Unstructured) {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	if a.objects[at] = o; o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		delete(a.objects, at)
	}
}

// mergePatch applies a JSON merge patch (RFC 7386).
func mergePatch(o, patch map[string]any) map[string]any {
	for name, value := range patch {
		inner, is := value.(map[string]any)
		switch {
		case value == nil:
			delete(o, name)
		case is:
			before, _ := o[name].(map[string]any)
			if before == nil {
				before = map[string]any{}
			}
			o[name] = mergePatch(before, inner)
		default:
			o[name] = value
		}
	}
	return o
}

// respond responds with the object, or with its metadata if requested.
func respond(w http.ResponseWriter, r *http.Request, o *unstructured.Unstructured) {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		jsonResponse(http.StatusOK, metaOf(o))(w, r)
		return
	}
	jsonResponse(http.StatusOK, o)(w, r)
}

func metaOf(o *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
			DeletionTimestamp: o.GetDeletionTimestamp(), Finalizers: o.GetFinalizers(), Annotations: o.GetAnnotations(), Labels: o.GetLabels(),
		},
	}
}

func jsonResponse(code int, value any) http.HandlerFunc {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return response(code, "application/json", string(text))
}

func response(code int, contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

func statusResponse(err *apierrors.StatusError) http.HandlerFunc {
	s := err.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return jsonResponse(int(s.Code), &s)
}

// notFoundResponse responds with NotFound for the object at a path.
func notFoundResponse(at string) http.HandlerFunc {
	gr := schema.GroupResource{Resource: path.Base(path.Dir(at))}
	if rest, ok := strings.CutPrefix(at, "/apis/"); ok {
		gr.Group, _, _ = strings.Cut(rest, "/")
	}
	return statusResponse(apierrors.NewNotFound(gr, path.Base(at)))
}

var (
	conflict      = statusResponse(apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "o", fmt.Errorf("the object has been modified")))
	forbidden     = statusResponse(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "o", fmt.Errorf("a webhook says no")))
	internalError = statusResponse(apierrors.NewInternalError(fmt.Errorf("etcd")))
	proxy404      = response(http.StatusNotFound, "text/html", "<h1>404</h1>")
)

// overrideMethod overrides the responses to requests with a method.
func (a *fakeAPI) overrideMethod(method string, handler http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.override = func(r *http.Request) http.HandlerFunc {
		if r.Method == method {
			return handler
		}
		return nil
	}
}

// clearOverride removes the override.
func (a *fakeAPI) clearOverride() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.override = nil
}

// countRequests returns the number of requests with a method since the last call.
func (a *fakeAPI) countRequests(method string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, request := range a.requests {
		if strings.HasPrefix(request, method) {
			n++
		}
	}
	a.requests = nil
	return n
}

// change modifies an object like another client.
func (a *fakeAPI) change(o *unstructured.Unstructured, mutate func(*unstructured.Unstructured)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := pathOf(o)
	changed := a.objects[at].DeepCopy()
	mutate(changed)
	a.put(at, changed)
}

// get returns the current object; nil if it does not exist.
func (a *fakeAPI) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[pathOf(o)].DeepCopy()
}

// remove deletes an object regardless of its finalizers.
func (a *fakeAPI) remove(o *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, pathOf(o))
}

// create stores a new object.
func (a *fakeAPI) create(o *unstructured.Unstructured) *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-of-%s-%d", o.GetName(), a.version)))
	}
	a.put(pathOf(o), o)
	return o.DeepCopy()
}

var resources = map[string]string{"ConfigMap": "configmaps", "Secret": "secrets", "Role": "roles", "Namespace": "namespaces"}

func pathOf(o *unstructured.Unstructured) string {
	gv := o.GroupVersionKind().GroupVersion()
	at := "/apis/" + gv.String()
	if gv.Group == "" {
		at = "/api/" + gv.Version
	}
	if o.GetNamespace() != "" {
		at += "/namespaces/" + o.GetNamespace()
	}
	return at + "/" + resources[o.GetKind()] + "/" + o.GetName()
}
