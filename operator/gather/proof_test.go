package gather_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// cut sends part of a response and closes the connection.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "1000")
	_, _ = w.Write([]byte(`{"kind":"PartialObject`))
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// refuse closes the connection without a response; the client retries until its timeout.
func refuse(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// hang sends no response until the client has disconnected.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// named is a 404 with the details of an object.
func named(group, kind, name string) http.HandlerFunc {
	return status(apierrors.NewNotFound(schema.GroupResource{Group: group, Resource: kind}, name))
}

// bare is a Status without details, the response of an API server that does not
// serve the type.
func bare() http.HandlerFunc {
	err := apierrors.NewNotFound(schema.GroupResource{}, "")
	err.ErrStatus.Details, err.ErrStatus.Message = nil, "the server could not find the requested resource"
	return status(err)
}

// The main rule of the package, for all kinds of failed reads.
func TestGather_FailedReadLeavesTheOwnerUnknown(t *testing.T) {
	const html, plain, script = "text/html", "text/plain", "application/json"
	down := errors.New("discovery is down")
	for name, c := range map[string]struct {
		response http.HandlerFunc
		serves   bool
		failure  error
	}{
		"500":                             {status(apierrors.NewInternalError(errors.New("etcd"))), true, nil},
		"503 from a load balancer":        {body(http.StatusServiceUnavailable, html, "<h1>no backend</h1>"), true, nil},
		"429":                             {status(apierrors.NewTooManyRequestsError("later")), true, nil},
		"403":                             {status(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "owner", nil)), true, nil},
		"401":                             {status(apierrors.NewUnauthorized("who?")), true, nil},
		"410":                             {status(apierrors.NewResourceExpired("too old")), true, nil},
		"the connection is cut":           {cut, true, nil},
		"no answer at all, over and over": {refuse, true, nil},
		"no answer in time":               {hang, true, nil},
		"an empty answer":                 {body(http.StatusOK, script, ""), true, nil},
		"no content":                      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, true, nil},
		"a page for a login":              {body(http.StatusOK, html, "<h1>please log in</h1>"), true, nil},
		"a redirect to nowhere":           {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, true, nil},

		"404 from a proxy, in HTML":                 {body(http.StatusNotFound, html, "<h1>404</h1>"), true, nil},
		"404 from a proxy, in plain text":           {body(http.StatusNotFound, plain, "404 page not found"), true, nil},
		"404 from a gateway, in JSON":               {body(http.StatusNotFound, script, `{"message":"no Route matched with those values"}`), true, nil},
		"404 from a gateway, that names the object": {body(http.StatusNotFound, script, `{"code":404,"name":"owner","reason":"NotFound"}`), true, nil},
		"404, empty": {body(http.StatusNotFound, script, ""), true, nil},
		"404 Status without details: no such type":   {bare(), true, nil},
		"404 Status that names another object":       {named("", "configmaps", "other"), true, nil},
		"404 Status that names no object":            {named("", "configmaps", ""), true, nil},
		"404 Status that names one of another group": {named("example.com", "configmaps", "owner"), true, nil},
		"404 Status, but discovery fails":            {named("", "configmaps", "owner"), true, down},
		"404 Status, but the type is not served":     {named("", "configmaps", "owner"), false, nil},
		"404 Status, and discovery has no types":     {named("", "configmaps", "owner"), false, down},
		"200 about another object":                   {cachedRead(meta("ns", "other", "owner")), true, nil},
		"200 about another object, with another UID": {cachedRead(meta("ns", "other", "another")), true, nil},
		"200 about another namespace":                {cachedRead(meta("elsewhere", "owner", "another")), true, nil},
		"200 without a UID":                          {cachedRead(meta("ns", "owner", "")), true, nil},
		"200 with a failure for a body":              {body(http.StatusOK, script, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`), true, nil},
		"200 with a list for a body":                 {page(""), true, nil},
	} {
		for _, known := range []graph.OwnerState{graph.Unseen, graph.Elsewhere, graph.Foreground} {
			t.Run(fmt.Sprintf("%s/%s", name, known), func(t *testing.T) {
				t.Parallel()
				w := newFixture(t, fixedGraph{id("child"): owned("ns", configMap, known)}, noOwner)
				w.serves = func() (bool, error) { return c.serves, c.failure }
				w.api.answer(mapPath, c.response)
				w.api.answer("/login", body(http.StatusNotFound, html, "<h1>404</h1>"))
				ctx, cancel := context.WithTimeout(t.Context(), waitTimeout(name))
				defer cancel()
				facts, ok := w.Gather(ctx, id("child"))
				if !ok {
					t.Fatal("no facts")
				}
				if got := facts.Owners[0]; got.Status != decide.Unknown || got.Message == "" {
					t.Errorf("status is %s, because: %q", got.Status, got.Message)
				}
				if diff := cmp.Diff([]graph.Event(nil), *w.observed); diff != "" {
					t.Errorf("learnt from a failed read:\n%s", diff)
				}
			})
		}
	}
}

func waitTimeout(name string) time.Duration {
	if strings.Contains(name, "no answer") {
		return 20 * time.Millisecond
	}
	return 10 * time.Second
}

// An aggregated API server must report absence twice.
func TestReader_InconsistentAggregatedAPIProvesNothing(t *testing.T) {
	gone, there := named(remote.Group, "remotes", "owner"), cachedRead(meta("ns", "owner", "owner"))
	broken := status(apierrors.NewServiceUnavailable("restarting"))
	for name, c := range map[string]struct {
		responses []http.HandlerFunc
		want      decide.OwnerStatus
	}{
		"absent, then there":   {[]http.HandlerFunc{gone, there}, decide.Present},
		"absent, then broken":  {[]http.HandlerFunc{gone, broken}, decide.Unknown},
		"broken, never absent": {[]http.HandlerFunc{broken, gone}, decide.Unknown},
		"there at once":        {[]http.HandlerFunc{there, gone}, decide.Present},
		"absent, both times":   {[]http.HandlerFunc{gone, gone}, decide.Absent},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, fixedGraph{id("child"): owned("ns", remote, graph.Unseen)}, noOwner)
			n := 0
			w.api.answer(remotePath, func(rw http.ResponseWriter, r *http.Request) {
				n++
				c.responses[n-1](rw, r)
			})
			if got := one(t, w, "child"); got.Status != c.want {
				t.Errorf("status is %s: %s", got.Status, got.Message)
			}
			for _, e := range *w.observed {
				if _, proof := e.(graph.Absent); proof {
					t.Errorf("event %+v from an aggregated API server", e)
				}
			}
		})
	}
}

// An object that is missing from one resource may be in another one that has the same kind.
func TestReader_AmbiguousKindIsNotAbsent(t *testing.T) {
	for name, response := range map[string]http.HandlerFunc{
		"404 Status": named("", "configmaps", "owner"), "an object of that name has another UID": cachedRead(meta("ns", "owner", "another")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, fixedGraph{}, noOwner)
			w.api.answer(mapPath, response)
			at := graph.Coordinates{UID: "owner", Kind: configMap, Namespace: "ns", Name: "owner"}
			resource := catalog.Resource{Version: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespaced: true, Local: true}
			if _, err := w.Reader.ReadLive(t.Context(), at, resource); err != nil {
				t.Errorf("the only resource of its kind: %v", err)
			}
			resource.Ambiguous = true
			if _, err := w.Reader.ReadLive(t.Context(), at, resource); err == nil {
				t.Error("absence from one resource counts as absence of the kind")
			}
		})
	}
}

// A reference may contain any name. The request must only be for an object of the type:
// Gleaner may have permissions that the author lacks, and some paths below an object do more
// than read.
func TestReader_RejectsInvalidNames(t *testing.T) {
	for _, name := range []string{
		"owner/status", "owner/proxy/shutdown", "../pods/owner", "../../other/services/web:80/proxy/shutdown", "..", ".",
	} {
		t.Run(name, func(t *testing.T) {
			view := owned("ns", configMap, graph.Unseen)
			view.Object.Owners[0].Name, view.Claims[0].Reference.Name = name, name
			w := newFixture(t, fixedGraph{id("child"): view}, noOwner)
			got := one(t, w, "child")
			if got.Status != decide.Unknown {
				t.Errorf("status is %s: %s", got.Status, got.Message)
			}
			for _, uri := range w.api.requests() {
				rest, below := strings.CutPrefix(uri, "/api/v1/namespaces/ns/configmaps/")
				if !below || strings.Contains(rest, "/") {
					t.Errorf("request for %s", uri)
				}
			}
		})
	}
}
