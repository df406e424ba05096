package finalize

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

// api is an API server that keeps objects as one does: a write needs the UID and the
// resourceVersion that it names, and what is being deleted goes with its last
// finalizer. Requests can be answered otherwise.
type api struct {
	*httptest.Server

	mu        sync.Mutex // covers what follows
	objects   map[string]*unstructured.Unstructured
	version   int
	asked     []string // methods and paths
	otherwise func(*http.Request) http.HandlerFunc
}

func newAPI(t testing.TB) *api {
	a := &api{objects: map[string]*unstructured.Unstructured{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *api) config() *rest.Config { return &rest.Config{Host: a.URL, QPS: -1} }

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked = append(a.asked, r.Method+" "+r.URL.Path)
	otherwise := a.otherwise
	a.mu.Unlock()
	if otherwise != nil {
		if answer := otherwise(r); answer != nil {
			answer(w, r)
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o, there := a.objects[r.URL.Path]
	switch {
	case !there && !strings.HasSuffix(r.URL.Path, "s"):
		missing(r.URL.Path)(w, r)
	case !there:
		a.list(w, r)
	case r.Method == http.MethodPatch:
		a.patch(w, r, o)
	default:
		answer(w, r, o)
	}
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	for _, at := range slices.Sorted(maps.Keys(a.objects)) {
		if path.Base(path.Dir(at)) == path.Base(r.URL.Path) {
			list.Items = append(list.Items, *metaOf(a.objects[at]))
		}
	}
	encoded(http.StatusOK, &list)(w, r)
}

func (a *api) patch(w http.ResponseWriter, r *http.Request, o *unstructured.Unstructured) {
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
	o = &unstructured.Unstructured{Object: merged(o.DeepCopy().Object, patch)}
	a.put(r.URL.Path, o)
	answer(w, r, o)
}

// put keeps an object at the next resourceVersion.
func (a *api) put(at string, o *unstructured.Unstructured) {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	if a.objects[at] = o; o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		delete(a.objects, at)
	}
}

// merged is a JSON merge patch (RFC 7386).
func merged(o, patch map[string]any) map[string]any {
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
			o[name] = merged(before, inner)
		default:
			o[name] = value
		}
	}
	return o
}

// answer answers with the object, or with its metadata if those are asked for.
func answer(w http.ResponseWriter, r *http.Request, o *unstructured.Unstructured) {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		encoded(http.StatusOK, metaOf(o))(w, r)
		return
	}
	encoded(http.StatusOK, o)(w, r)
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

func encoded(code int, value any) http.HandlerFunc {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return body(code, "application/json", string(text))
}

func body(code int, contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

func status(err *apierrors.StatusError) http.HandlerFunc {
	s := err.Status()
	s.Kind, s.APIVersion = "Status", "v1"
	return encoded(int(s.Code), &s)
}

// missing is an API server's word that it has no object at a path.
func missing(at string) http.HandlerFunc {
	gr := schema.GroupResource{Resource: path.Base(path.Dir(at))}
	if rest, ok := strings.CutPrefix(at, "/apis/"); ok {
		gr.Group, _, _ = strings.Cut(rest, "/")
	}
	return status(apierrors.NewNotFound(gr, path.Base(at)))
}

var (
	conflict = status(apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "o", fmt.Errorf("the object has been modified")))
	refused  = status(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "o", fmt.Errorf("a webhook says no")))
	oops     = status(apierrors.NewInternalError(fmt.Errorf("etcd")))
	proxy404 = body(http.StatusNotFound, "text/html", "<h1>404</h1>")
)

// on answers requests of a method in another way.
func (a *api) on(method string, answer http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.otherwise = func(r *http.Request) http.HandlerFunc {
		if r.Method == method {
			return answer
		}
		return nil
	}
}

// mend ends that.
func (a *api) mend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.otherwise = nil
}

// asks returns how many requests of a method there were since the last call.
func (a *api) asks(method string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, asked := range a.asked {
		if strings.HasPrefix(asked, method) {
			n++
		}
	}
	a.asked = nil
	return n
}

// change changes an object, as somebody else does.
func (a *api) change(o *unstructured.Unstructured, how func(*unstructured.Unstructured)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := pathOf(o)
	changed := a.objects[at].DeepCopy()
	how(changed)
	a.put(at, changed)
}

// get returns an object as it is; nil if it is not.
func (a *api) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[pathOf(o)].DeepCopy()
}

// remove has an object be gone, whatever finalizers it has.
func (a *api) remove(o *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.objects, pathOf(o))
}

// create keeps a new object.
func (a *api) create(o *unstructured.Unstructured) *unstructured.Unstructured {
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
