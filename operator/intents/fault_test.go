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

// types are some that an API server serves.
func types() *catalog.Catalog {
	return catalog.Build(nil, []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "namespaces", Kind: "Namespace"},
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
		}},
		{GroupVersion: "gleaner.dev/v1alpha1", APIResources: []metav1.APIResource{{Name: "clustergcpolicies", Kind: "ClusterGCPolicy"}}},
	}, catalog.Settings{})
}

// allowed is a finalizer of the cluster that may do everything.
func allowed() intents.Behalf {
	all := policies.Reads{Rule: policies.Rule{Groups: []string{policies.All}, Resources: []string{policies.All}}, Namespaces: []string{policies.All}}
	return intents.Behalf{
		Name: "ClusterFinalizer test", Account: policies.Account{Namespace: "ns", Name: "worker"},
		Grants: policies.Grants{
			Read:  []policies.Reads{all},
			Write: []policies.Writes{{Reads: all, Verbs: []policies.Verb{policies.VerbCreate, policies.VerbDelete, policies.VerbPatch}}},
		},
	}
}

var configMap = hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "a"}

// What an API server, or what stands before it, answers when it can't do what it is
// asked: a real one can't be brought to it at will.
func TestAnAnswerThatIsNotTheAPIServersWordProvesNothing(t *testing.T) {
	const status = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": CODE, "reason": "REASON", "message": "told", "details": DETAILS}`
	of := func(code, reason, details string) string {
		return strings.NewReplacer("CODE", code, "REASON", reason, "DETAILS", details).Replace(status)
	}
	for claim, c := range map[string]struct {
		code   int
		after  string
		body   string
		reason hostabi.ErrorReason
		says   string
	}{
		"its own word that there is none": {404, "", of("404", "NotFound", `{"name": "a", "kind": "configmaps"}`), hostabi.ErrorNotFound, "told"},
		"a word about another object":     {404, "", of("404", "NotFound", `{"name": "b", "kind": "configmaps"}`), hostabi.ErrorUnavailable, ""},
		"a word about no object":          {404, "", of("404", "NotFound", `{}`), hostabi.ErrorUnavailable, ""},
		"a proxy's page":                  {404, "", "<html>404</html>", hostabi.ErrorUnavailable, ""},
		"a proxy that forbids":            {403, "", "<html>403</html>", hostabi.ErrorUnavailable, ""},
		"an API server that forbids":      {403, "", of("403", "Forbidden", "{}"), hostabi.ErrorForbidden, "told"},
		"a time to wait":                  {429, "30", "Too many requests", hostabi.ErrorUnavailable, "try again at 2026-01-02T03:04:30Z"},
		"a long time to wait":             {429, "86400", of("429", "TooManyRequests", `{"retryAfterSeconds": 86400}`), hostabi.ErrorUnavailable, "try again at 2026-01-02T03:14:00Z"},
		"a server that is starting":       {503, "5", of("503", "ServiceUnavailable", `{"retryAfterSeconds": 5}`), hostabi.ErrorUnavailable, "try again at 2026-01-02T03:04:05Z"},
		"an error of its own":             {500, "", of("500", "InternalError", "{}"), hostabi.ErrorUnavailable, ""},
		"a continue that is too old":      {410, "", of("410", "Expired", "{}"), hostabi.ErrorExpired, "told"},
		"a conflict":                      {409, "", of("409", "Conflict", "{}"), hostabi.ErrorConflict, "told"},
		"whom it does not know":           {401, "", of("401", "Unauthorized", "{}"), hostabi.ErrorUnavailable, ""},
		"another object":                  {200, "", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "ns", "uid": "1"}}`, hostabi.ErrorUnavailable, "another object"},
		"no object":                       {200, "", "null", hostabi.ErrorUnavailable, ""},
		"something else":                  {200, "", "<html>fine</html>", hostabi.ErrorUnavailable, ""},
		"more than is read":               {200, "", strings.Repeat("x", hostabi.MaxRequestBytes/4+1), hostabi.ErrorInvalid, "2097152 bytes"},
	} {
		t.Run(claim, func(t *testing.T) {
			s, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
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
			e := intents.New(intents.Options{Config: &rest.Config{Host: s.URL}, Catalog: types, Now: now})
			r := e.Do(t.Context(), allowed(), hostabi.Intent{ID: "a", Get: &hostabi.GetIntent{Target: configMap}})
			fails(t, r, c.reason, c.says)
			if n := asked.Load(); n != 1 {
				t.Errorf("the server was asked %d times", n) // it is for the module to ask again
			}
		})
	}
}

func TestAWriteWithoutAnAnswerMayHaveBeenDone(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	e := intents.New(intents.Options{Config: &rest.Config{Host: s.URL}, Catalog: types})
	r := e.Do(t.Context(), allowed(), hostabi.Intent{ID: "a", Delete: &hostabi.DeleteIntent{Target: configMap, UID: "1"}})
	fails(t, r, hostabi.ErrorUnavailable, "delete configmaps ns/a", "whether it was done is not known")
}

func TestWhatIsNotGrantedIsNotAskedFor(t *testing.T) {
	s, asked := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	e := intents.New(intents.Options{Config: &rest.Config{Host: s.URL}, Catalog: types})
	policy := hostabi.Target{APIVersion: "gleaner.dev/v1alpha1", Kind: "ClusterGCPolicy", Name: "a"}
	namespaced := func(b *intents.Behalf) { b.Namespace = "ns" }
	nothing := func(*intents.Behalf) {}
	for claim, c := range map[string]struct {
		change func(*intents.Behalf)
		intent hostabi.Intent
		reason hostabi.ErrorReason
	}{
		"a policy is not patched": {nothing,
			hostabi.Intent{Patch: &hostabi.PatchIntent{Target: policy, Type: "merge", Patch: []byte("{}")}}, hostabi.ErrorNotGranted},
		"a policy is not deleted": {nothing, hostabi.Intent{Delete: &hostabi.DeleteIntent{Target: policy, UID: "1"}}, hostabi.ErrorNotGranted},
		"a policy is not created": {nothing, hostabi.Intent{Create: &hostabi.CreateIntent{
			Object: []byte(`{"apiVersion": "gleaner.dev/v1alpha1", "kind": "ClusterGCPolicy", "metadata": {"name": "a"}}`)}}, hostabi.ErrorNotGranted},
		"nobody does nothing": {func(b *intents.Behalf) { b.Account = policies.Account{} },
			hostabi.Intent{Get: &hostabi.GetIntent{Target: configMap}}, hostabi.ErrorNotGranted},
		"nor an account of elsewhere": {func(b *intents.Behalf) { b.Namespace, b.Account.Namespace = "ns", "other" },
			hostabi.Intent{Get: &hostabi.GetIntent{Target: configMap}}, hostabi.ErrorNotGranted},
		"nor a namespace all namespaces": {namespaced,
			hostabi.Intent{List: &hostabi.ListIntent{APIVersion: "v1", Kind: "ConfigMap"}}, hostabi.ErrorNotGranted},
		"nor what is in none": {namespaced, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "Namespace", Name: "ns"}}}, hostabi.ErrorNotGranted},
		"a subresource by its name": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "a/status"}}}, hostabi.ErrorInvalid},
		"another path by its name": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "..", Name: ".."}}}, hostabi.ErrorInvalid},
		"an object without a name": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns"}}}, hostabi.ErrorInvalid},
		"nor without its namespace": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}}}, hostabi.ErrorInvalid},
		"a namespace of what has none": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v1", Kind: "Namespace", Namespace: "ns", Name: "a"}}}, hostabi.ErrorInvalid},
		"a type that there is not": {nothing, hostabi.Intent{Get: &hostabi.GetIntent{
			Target: hostabi.Target{APIVersion: "v2", Kind: "ConfigMap", Namespace: "ns", Name: "a"}}}, hostabi.ErrorInvalid},
	} {
		t.Run(claim, func(t *testing.T) {
			on := allowed()
			c.change(&on)
			c.intent.ID = "a"
			fails(t, e.Do(t.Context(), on, c.intent), c.reason)
		})
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestTypesThatNobodyCouldAskAboutMayBeThere(t *testing.T) {
	for claim, c := range map[string]*catalog.Catalog{
		"before discovery": catalog.Build(nil, nil, catalog.Settings{}),
		"without any":      nil,
		"after it failed": catalog.Build(nil, nil, catalog.Settings{
			Previous: types(), Failed: map[schema.GroupVersion]error{{Version: "v1"}: errors.New("no answer")},
		}),
	} {
		t.Run(claim, func(t *testing.T) {
			e := intents.New(intents.Options{Catalog: func() *catalog.Catalog { return c }})
			fails(t, e.Do(t.Context(), allowed(), hostabi.Intent{ID: "a", Get: &hostabi.GetIntent{Target: configMap}}), hostabi.ErrorUnavailable, "not known")
		})
	}
}
