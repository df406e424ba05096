package debug

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// fakeCluster is an API server with configurable token and access reviews.
type fakeCluster struct {
	users  map[string]string // user names by token
	allows func(authorizationv1.SubjectAccessReviewSpec) bool

	mu      sync.Mutex // protects the fields below
	broken  bool       // access reviews fail
	reviews []authorizationv1.SubjectAccessReviewSpec
}

func (c *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		review := &authenticationv1.TokenReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		if name, known := c.users[review.Spec.Token]; known {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name}}
		}
		respond(w, http.StatusCreated, review)
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		review := &authorizationv1.SubjectAccessReview{}
		_ = json.NewDecoder(r.Body).Decode(review)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reviews = append(c.reviews, review.Spec)
		if c.broken {
			respond(w, http.StatusForbidden, &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden})
			return
		}
		review.Status.Allowed = c.allows(review.Spec)
		respond(w, http.StatusCreated, review)
	default:
		http.NotFound(w, r)
	}
}

func respond(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

func (c *fakeCluster) guard(t *testing.T) *Guard {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGuard(client)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// resources are the types that the cluster serves.
func resources(gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	names := map[string]string{"ConfigMap": "configmaps", "Deployment": "deployments"}
	name, ok := names[gvk.Kind]
	return gvk.GroupVersion().WithResource(name), ok
}

// guarded returns a handler for a graph behind a guard.
func guarded(t *testing.T, c *fakeCluster, s Source) http.Handler {
	t.Helper()
	g := c.guard(t)
	s.ReadAccess = g.ReadAccess(resources)
	mux := http.NewServeMux()
	for path, handler := range Handlers(s) {
		filtered, err := g.Filter(logr.Discard(), handler)
		if err != nil {
			t.Fatal(err)
		}
		mux.Handle(path, filtered)
	}
	return mux
}

func getWithToken(t *testing.T, h http.Handler, url, token string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func isPath(s authorizationv1.SubjectAccessReviewSpec) bool { return s.NonResourceAttributes != nil }

func TestGuard_AuthenticatesAndAuthorizes(t *testing.T) {
	pathsOf := func(user string) func(authorizationv1.SubjectAccessReviewSpec) bool {
		return func(s authorizationv1.SubjectAccessReviewSpec) bool {
			return isPath(s) && s.User == user && *s.NonResourceAttributes == authorizationv1.NonResourceAttributes{Path: "/debug/gc/synced", Verb: "get"}
		}
	}
	for name, c := range map[string]struct {
		token  string
		allows func(authorizationv1.SubjectAccessReviewSpec) bool
		broken bool
		code   int
		want   string
	}{
		"allowed":          {"good", pathsOf("alice"), false, http.StatusOK, "ok\n"},
		"no token":         {"", pathsOf("alice"), false, http.StatusUnauthorized, "Unauthorized: send a bearer token that this cluster accepts\n"},
		"an unknown token": {"bad", pathsOf("alice"), false, http.StatusUnauthorized, "Unauthorized: send a bearer token that this cluster accepts\n"},
		"a forbidden path": {"good", pathsOf("bob"), false, http.StatusForbidden, "Forbidden: user \"alice\" needs a ClusterRole with the verb \"get\" on the nonResourceURL \"/debug/gc/synced\"\n"},
		"a failed review":  {"good", pathsOf("alice"), true, http.StatusInternalServerError, "access review failed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := guarded(t, &fakeCluster{users: map[string]string{"good": "alice"}, allows: c.allows, broken: c.broken}, source())
			w := getWithToken(t, h, "/debug/gc/synced", c.token)
			if diff := cmp.Diff(c.want, w.Body.String()); diff != "" || w.Code != c.code {
				t.Errorf("%d\n%s", w.Code, diff)
			}
		})
	}
}

// A client sees the objects in the graph that it may get, and the edges between them.
func TestGuard_ShowsObjectsTheClientMayGet(t *testing.T) {
	gadget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	objects := append(family(), object(gadget, "unserved", "6", owner(deployment, "web", "2")))
	s := source(objects...)
	s.Records = func(types.UID) []record.Entry {
		return []record.Entry{{Object: configMapNamed("settings")}, {Object: configMapNamed("leaving")}}
	}
	type shown struct {
		Nodes   []types.UID
		Edges   []graph.DumpEdge
		Records []string
	}
	for name, c := range map[string]struct {
		allows func(authorizationv1.ResourceAttributes) bool
		want   shown
	}{
		"everything": {func(a authorizationv1.ResourceAttributes) bool {
			return a.Resource == "*" && a.Group == "*" && a.Namespace == ""
		},
			shown{
				Nodes:   []types.UID{"2", "3", "4", "6"},
				Edges:   []graph.DumpEdge{{Dependent: "3", Owner: "2", Blocking: true}, {Dependent: "4", Owner: "2"}, {Dependent: "6", Owner: "2"}},
				Records: []string{"settings", "leaving"},
			}},
		"nothing": {func(authorizationv1.ResourceAttributes) bool { return false }, shown{}},
		"one type, and one object of another": {func(a authorizationv1.ResourceAttributes) bool {
			return a == authorizationv1.ResourceAttributes{Verb: "get", Group: "apps", Version: "v1", Resource: "deployments", Namespace: "ns", Name: "web"} ||
				a.Resource == "configmaps" && a.Name == "settings"
		}, shown{
			Nodes:   []types.UID{"2", "3"},
			Edges:   []graph.DumpEdge{{Dependent: "3", Owner: "2", Blocking: true}},
			Records: []string{"settings"},
		}},
		"dependents without their owner": {func(a authorizationv1.ResourceAttributes) bool { return a.Resource == "configmaps" },
			shown{Nodes: []types.UID{"3", "4"}, Records: []string{"settings", "leaving"}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := guarded(t, &fakeCluster{users: map[string]string{"good": "alice"}, allows: func(s authorizationv1.SubjectAccessReviewSpec) bool {
				return isPath(s) || s.User == "alice" && c.allows(*s.ResourceAttributes)
			}}, s)
			var dump graph.Dump
			decode(t, getWithToken(t, h, "/debug/gc/graph?format=json", "good"), &dump)
			var records struct{ Items []record.Entry }
			decode(t, getWithToken(t, h, "/debug/gc/records", "good"), &records)
			got := shown{}
			for _, n := range dump.Nodes {
				got.Nodes = append(got.Nodes, n.UID)
			}
			got.Edges = append(got.Edges, dump.Edges...)
			for _, e := range records.Items {
				got.Records = append(got.Records, e.Object.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// For a client that may get everything, there is one review, not one for each object.
func TestReadAccess_ReviewsOnceForFullAccess(t *testing.T) {
	c := &fakeCluster{users: map[string]string{"good": "alice"}, allows: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }}
	getWithToken(t, guarded(t, c, source(family()...)), "/debug/gc/graph", "good")
	groups := []string{"system:authenticated"}
	want := []authorizationv1.SubjectAccessReviewSpec{
		{User: "alice", Groups: groups, NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/debug/gc/graph", Verb: "get"}},
		{User: "alice", Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Group: "*", Version: "*", Resource: "*"}},
	}
	if diff := cmp.Diff(want, c.reviews); diff != "" {
		t.Error(diff)
	}
}

// If access reviews fail, the client sees nothing.
func TestGuard_FailedReviewShowsNothing(t *testing.T) {
	c := &fakeCluster{users: map[string]string{"good": "alice"}}
	c.allows = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		c.broken = true // after the first
		return isPath(s)
	}
	w := getWithToken(t, guarded(t, c, source(family()...)), "/debug/gc/graph", "good")
	if text := w.Body.String(); w.Code == http.StatusOK && strings.Contains(text, "web") {
		t.Errorf("%d %s", w.Code, text)
	}
}

// A request that did not pass the guard sees nothing.
func TestReadAccess_DeniesUnauthenticatedRequests(t *testing.T) {
	g := (&fakeCluster{}).guard(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/gc/graph", nil)
	if g.ReadAccess(resources)(r)(configMapNamed("settings")) {
		t.Error("it sees an object")
	}
}
