package intents_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/policies"
)

// testCatalog returns a catalog with some types.
func testCatalog() *catalog.Catalog {
	return catalog.Build(nil, []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "namespaces", Kind: "Namespace"},
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
		}},
		{GroupVersion: "gleaner.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "clustergcpolicies", Kind: "ClusterGCPolicy"}}},
	}, catalog.Settings{})
}

// allGranted returns a cluster-scoped finalizer that may do everything.
func allGranted() intents.Identity {
	all := policies.ReadRule{Rule: policies.Rule{Groups: []string{policies.Wildcard}, Resources: []string{policies.Wildcard}}, Namespaces: []string{policies.Wildcard}}
	return intents.Identity{
		Name: "ClusterFinalizer test", Account: policies.ServiceAccount{Namespace: "ns", Name: "worker"},
		Grants: policies.Grants{
			Read:  []policies.ReadRule{all},
			Write: []policies.WriteRule{{ReadRule: all, Verbs: []policies.Verb{policies.VerbCreate, policies.VerbDelete, policies.VerbPatch}}},
		},
	}
}

var configMap = hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "a"}

// Error responses of an API server or a proxy, which a real API server does not return on
// demand.
func TestAPIError_ClassifiesResponses(t *testing.T) {
	const status = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": CODE, "reason": "REASON", "message": "told", "details": DETAILS}`
	newStatus := func(code, reason, details string) string {
		return strings.NewReplacer("CODE", code, "REASON", reason, "DETAILS", details).Replace(status)
	}
	for claim, c := range map[string]struct {
		code        int
		after       string
		body        string
		reason      hostabi.ErrorReason
		wantMessage string
	}{
		"NotFound for the object":      {404, "", newStatus("404", "NotFound", `{"name": "a", "kind": "configmaps"}`), hostabi.ErrorNotFound, "told"},
		"NotFound for another object":  {404, "", newStatus("404", "NotFound", `{"name": "b", "kind": "configmaps"}`), hostabi.ErrorUnavailable, ""},
		"NotFound without an object":   {404, "", newStatus("404", "NotFound", `{}`), hostabi.ErrorUnavailable, ""},
		"404 page of a proxy":          {404, "", "<html>404</html>", hostabi.ErrorUnavailable, ""},
		"403 page of a proxy":          {403, "", "<html>403</html>", hostabi.ErrorUnavailable, ""},
		"Forbidden":                    {403, "", newStatus("403", "Forbidden", "{}"), hostabi.ErrorForbidden, "told"},
		"Retry-After":                  {429, "30", "Too many requests", hostabi.ErrorUnavailable, "retry at 2026-01-02T03:04:30Z"},
		"long Retry-After":             {429, "86400", newStatus("429", "TooManyRequests", `{"retryAfterSeconds": 86400}`), hostabi.ErrorUnavailable, "retry at 2026-01-02T03:14:00Z"},
		"ServiceUnavailable":           {503, "5", newStatus("503", "ServiceUnavailable", `{"retryAfterSeconds": 5}`), hostabi.ErrorUnavailable, "retry at 2026-01-02T03:04:05Z"},
		"InternalError":                {500, "", newStatus("500", "InternalError", "{}"), hostabi.ErrorUnavailable, ""},
		"expired continue token":       {410, "", newStatus("410", "Expired", "{}"), hostabi.ErrorExpired, "told"},
		"Conflict":                     {409, "", newStatus("409", "Conflict", "{}"), hostabi.ErrorConflict, "told"},
		"Unauthorized":                 {401, "", newStatus("401", "Unauthorized", "{}"), hostabi.ErrorUnavailable, ""},
		"another object":               {200, "", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "ns", "uid": "1"}}`, hostabi.ErrorUnavailable, "another object"},
		"no object":                    {200, "", "null", hostabi.ErrorUnavailable, ""},
		"not JSON":                     {200, "", "<html>fine</html>", hostabi.ErrorUnavailable, ""},
		"a response that is too large": {200, "", strings.Repeat("x", hostabi.MaxRequestBytes/4+1), hostabi.ErrorInvalid, "2097152 bytes"},
	} {
		t.Run(claim, func(t *testing.T) {
			s, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(c.body, "<") || c.after == "30" {
					w.Header().Set("Content-Type", "text/html")
				} else {
					w.Header().Set("Content-Type", "application/json")
				}
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte(c.body))
			})
			now := func() time.Time { return time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC) }
			e := intents.New(intents.Options{Config: &rest.Config{Host: s.URL}, Catalog: testCatalog, Now: now})
			r := e.Do(t.Context(), allGranted(), hostabi.Intent{ID: "a", Get: &hostabi.GetIntent{Target: configMap}})
			wantError(t, r, c.reason, c.wantMessage)
			if n := requests.Load(); n != 1 {
				t.Errorf("the server received %d requests", n) // retries are up to the module
			}
		})
	}
}

func TestWrite_WithoutResponseMayHaveSucceeded(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	e := intents.New(intents.Options{Config: &rest.Config{Host: s.URL}, Catalog: testCatalog})
	r := e.Do(t.Context(), allGranted(), hostabi.Intent{ID: "a", Delete: &hostabi.DeleteIntent{Target: configMap, UID: "1"}})
	wantError(t, r, hostabi.ErrorUnavailable, "delete configmaps ns/a", "the write may have succeeded")
}

func TestIntents_WithoutGrantAreNotSent(t *testing.T) {
	s, requests := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	e := intents.New(intents.Options{Config: &rest.Config{Host: s.URL}, Catalog: testCatalog})
	policy := hostabi.Target{APIVersion: "gleaner.dev/v1alpha1", Kind: "ClusterGCPolicy", Name: "a"}
	namespaced := func(b *intents.Identity) { b.Namespace = "ns" }
	nothing := func(*intents.Identity) {}
	for claim, c := range map[string]struct {
		change func(*intents.Identity)
		intent hostabi.Intent
		reason hostabi.ErrorReason
	}{
		"a policy is not patched": {nothing,
			hostabi.Intent{Patch: &hostabi.PatchIntent{Target: policy, Type: "merge", Patch: []byte("{}")}}, hostabi.ErrorNotGranted},
		"a policy is not deleted": {nothing, hostabi.Intent{Delete: &hostabi.DeleteIntent{Target: policy, UID: "1"}}, hostabi.ErrorNotGranted},
		"a policy is not created": {nothing, hostabi.Intent{Create: &hostabi.CreateIntent{
			Object: []byte(`{"apiVersion": "gleaner.dev/v1alpha1", "kind": "ClusterGCPolicy", "metadata": {"name": "a"}}`)}}, hostabi.ErrorNotGranted},
		"no service account": {func(b *intents.Identity) { b.Account = policies.ServiceAccount{} },
			hostabi.Intent{Get: &hostabi.GetIntent{Target: configMap}}, hostabi.ErrorNotGranted},
		"a service account of another namespace": {func(b *intents.Identity) { b.Namespace, b.Account.Namespace = "ns", "other" },
			hostabi.Intent{Get: &hostabi.GetIntent{Target: configMap}}, hostabi.ErrorNotGranted},
		"all namespaces for a namespaced finalizer": {namespaced,
			hostabi.Intent{List: &hostabi.ListIntent{APIVersion: "v1", Kind: "ConfigMap"}}, hostabi.ErrorNotGranted},
		"a cluster-scoped object for a namespaced finalizer": {namespaced, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "Namespace", Name: "ns"}}}, hostabi.ErrorNotGranted},
		"a subresource in the name": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "a/status"}}}, hostabi.ErrorInvalid},
		"another path in the name": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "..", Name: ".."}}}, hostabi.ErrorInvalid},
		"an object without a name": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns"}}}, hostabi.ErrorInvalid},
		"an object without a namespace": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}}}, hostabi.ErrorInvalid},
		"a namespace for a cluster-scoped object": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "Namespace", Namespace: "ns", Name: "a"}}}, hostabi.ErrorInvalid},
		"a type that is not served": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v2", Kind: "ConfigMap", Namespace: "ns", Name: "a"}}}, hostabi.ErrorInvalid},
	} {
		t.Run(claim, func(t *testing.T) {
			identity := allGranted()
			c.change(&identity)
			c.intent.ID = "a"
			wantError(t, e.Do(t.Context(), identity, c.intent), c.reason)
		})
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the server received %d requests", n)
	}
}

func TestFindResource_UnavailableBeforeDiscovery(t *testing.T) {
	for claim, c := range map[string]*catalog.Catalog{
		"before discovery": catalog.Build(nil, nil, catalog.Settings{}),
		"without any":      nil,
		"after it failed": catalog.Build(nil, nil, catalog.Settings{
			Previous: testCatalog(), Failed: map[schema.GroupVersion]error{{Version: "v1"}: errors.New("no answer")},
		}),
	} {
		t.Run(claim, func(t *testing.T) {
			e := intents.New(intents.Options{Catalog: func() *catalog.Catalog { return c }})
			wantError(t, e.Do(t.Context(), allGranted(), hostabi.Intent{ID: "a", Get: &hostabi.GetIntent{Target: configMap}}), hostabi.ErrorUnavailable, "discovery")
		})
	}
}
