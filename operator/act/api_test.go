package act_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

const (
	podPath    = "/api/v1/namespaces/ns/pods/p"
	widgetPath = "/apis/example.com/v1/namespaces/ns/widgets/p"
	nodePath   = "/api/v1/nodes/p"

	merge     = "application/merge-patch+json"
	strategic = "application/strategic-merge-patch+json"
)

// request is a request as the API server got it. The body is compact JSON.
type request struct {
	Method, Path, Type, Body string
}

// apiServer is a fake API server that sends the given responses in order, repeats the last one,
// and records requests.
type apiServer struct {
	*httptest.Server

	mu       sync.Mutex // covers what follows
	received []request
	handlers []http.HandlerFunc
}

func newAPIServer(t *testing.T, responses ...http.HandlerFunc) *apiServer {
	a := &apiServer{handlers: responses}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	got := request{Method: r.Method, Path: r.URL.RequestURI(), Body: strings.TrimSpace(string(text))}
	if r.Method != http.MethodGet {
		got.Type = r.Header.Get("Content-Type")
	}
	a.mu.Lock()
	response := a.handlers[min(len(a.received), len(a.handlers)-1)]
	a.received = append(a.received, got)
	a.mu.Unlock()
	response(w, r)
}

func (a *apiServer) requests() []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.received)
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

func encoded(code int, value any) http.HandlerFunc {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return body(code, "application/json", string(text))
}

var (
	pods = schema.GroupResource{Resource: "pods"}

	done                 = live("uid", "8")
	proxy404             = body(http.StatusNotFound, "text/html", "<h1>404</h1>")
	conflict             = status(apierrors.NewConflict(pods, "p", fmt.Errorf("the object has been modified")))
	internalError        = status(apierrors.NewInternalError(fmt.Errorf("etcd")))
	forbidden            = status(apierrors.NewForbidden(pods, "p", fmt.Errorf("denied by a webhook")))
	unsupportedMediaType = body(http.StatusUnsupportedMediaType, "application/json",
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"UnsupportedMediaType","code":415}`)
)

// live is an object as the API server has it.
func live(uid, resourceVersion string, finalizers ...string) http.HandlerFunc {
	return encoded(http.StatusOK, &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid), ResourceVersion: resourceVersion, Finalizers: finalizers},
	})
}

// missing is a kube-apiserver's 404 for an object at a path.
func missing(at string) http.HandlerFunc {
	gr := schema.GroupResource{Resource: path.Base(path.Dir(at))}
	if rest, ok := strings.CutPrefix(at, "/apis/"); ok {
		gr.Group, _, _ = strings.Cut(rest, "/")
	}
	return status(apierrors.NewNotFound(gr, path.Base(at)))
}

// invalid is a 422 about a field.
func invalid(field string) http.HandlerFunc {
	return encoded(http.StatusUnprocessableEntity, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		Details: &metav1.StatusDetails{Name: "p", Causes: []metav1.StatusCause{
			{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: "field is immutable"},
		}},
	})
}

func served(versions ...string) *catalog.Catalog {
	resource := func(name, kind string, namespaced bool) metav1.APIResource {
		return metav1.APIResource{Name: name, Kind: kind, Namespaced: namespaced, Verbs: metav1.Verbs{"delete", "list", "watch"}}
	}
	lists := []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		resource("pods", "Pod", true), resource("nodes", "Node", false),
	}}}
	for _, v := range versions {
		lists = append(lists, &metav1.APIResourceList{GroupVersion: "example.com/" + v,
			APIResources: []metav1.APIResource{resource("widgets", "Widget", true)}})
	}
	return catalog.Build(nil, lists, catalog.Settings{})
}

func actor(t *testing.T, a *apiServer) *act.Actor {
	t.Helper()
	client, err := metadata.NewForConfig(&rest.Config{Host: a.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return act.New(client, func() *catalog.Catalog { return served("v1") }, keys)
}

// keys returns the keys of the operator.
func keys() (statekey.Keys, error) {
	return statekey.Parse(map[string][]byte{statekey.Current: bytes.Repeat([]byte{1}, statekey.MinBytes)})
}

var (
	podKind    = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	nodeKind   = schema.GroupVersionKind{Version: "v1", Kind: "Node"}
)

// object is one with owners a, b and c.
func object(kind schema.GroupVersionKind) graph.Object {
	o := graph.Object{UID: "uid", ResourceVersion: "7", Kind: kind, Namespace: "ns", Name: "p"}
	if kind == nodeKind {
		o.Namespace = ""
	}
	for _, uid := range []string{"a", "b", "c"} {
		o.Owners = append(o.Owners, owner(uid))
	}
	return o
}

func owner(uid string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: uid, UID: types.UID(uid)}
}

// list returns owner references as JSON.
func list(uids ...string) string {
	refs := []string{}
	for _, uid := range uids {
		refs = append(refs, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","name":"%s","uid":"%s"}`, uid, uid))
	}
	return strings.Join(refs, ",")
}

// outcome is the result of an action, with its requests.
type outcome struct {
	Result   act.Result
	Failed   bool
	Requests []request
}

func do(t *testing.T, a *apiServer, actor *act.Actor, action decide.Action) outcome {
	t.Helper()
	result, err := actor.Do(t.Context(), action)
	return outcome{result, err != nil, a.requests()}
}

func deletion(at, text string) request { return request{"DELETE", at, "application/json", text} }

func patched(at, patchType, text string) request { return request{"PATCH", at, patchType, text} }

const preconditions = `"preconditions":{"uid":"uid","resourceVersion":"7"}`
