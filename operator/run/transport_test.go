package run

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestVerb(t *testing.T) {
	for _, c := range []struct{ method, url, want string }{
		{"GET", "/api/v1/pods", "list"},
		{"GET", "/api/v1/pods?limit=500", "list"},
		{"GET", "/api/v1/namespaces/ns/pods", "list"},
		{"GET", "/apis/apps/v1/deployments", "list"},
		{"GET", "/apis/apps/v1/namespaces/ns/deployments", "list"},
		{"GET", "/api/v1/namespaces", "list"},
		{"GET", "/api/v1/pods?watch=true", "watch"},
		{"GET", "/apis/apps/v1/namespaces/ns/deployments?allowWatchBookmarks=true&watch=1", "watch"},
		{"GET", "/api/v1/namespaces/ns/pods/p", "get"},
		{"GET", "/api/v1/nodes/n", "get"},
		{"GET", "/api/v1/namespaces/ns", "get"},
		{"GET", "/apis/apps/v1/namespaces/ns/deployments/d", "get"},
		{"GET", "/apis/apps/v1/namespaces/ns/deployments/d/scale", "get"},
		{"POST", "/api/v1/namespaces/ns/configmaps", "create"},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l", "update"},
		{"PATCH", "/api/v1/namespaces/ns/pods/p", "patch"},
		{"DELETE", "/api/v1/namespaces/ns/pods/p", "delete"},
		{"GET", "/api", "discover"},
		{"GET", "/apis", "discover"},
		{"GET", "/api/v1", "discover"},
		{"GET", "/apis/apps", "discover"},
		{"GET", "/apis/apps/v1", "discover"},
		{"GET", "/version", "discover"},
		{"GET", "/", "discover"},
	} {
		if got := verb(httptest.NewRequest(c.method, c.url, nil)); got != c.want {
			t.Errorf("%s %s is %q, want %q", c.method, c.url, got, c.want)
		}
	}
}

// answers is a transport that answers with a code, or not at all with 0.
type answers int

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	if a == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: int(a)}, nil
}

func TestCallsAreCountedByVerbAndCode(t *testing.T) {
	count := func(verb, code string) float64 {
		registry := prometheus.NewRegistry()
		registry.MustRegister(Calls)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if l := m.GetLabel(); l[0].GetValue() == code && l[1].GetValue() == verb { // labels are sorted by name
					return m.GetCounter().GetValue()
				}
			}
		}
		return 0
	}
	for _, c := range []struct {
		method string
		answer answers
		verb   string
		code   string
	}{
		{"GET", 200, "get", "200"}, {"GET", 404, "get", "404"}, {"DELETE", 409, "delete", "409"}, {"PATCH", 0, "patch", "0"},
	} {
		before := count(c.verb, c.code)
		response, err := Count(c.answer).RoundTrip(httptest.NewRequest(c.method, "/api/v1/namespaces/ns/pods/p", nil))
		if (err != nil) != (c.answer == 0) || response != nil && response.StatusCode != int(c.answer) {
			t.Errorf("%s: answered with %v, %v", c.method, response, err)
		}
		if got := count(c.verb, c.code) - before; got != 1 {
			t.Errorf("%s %s was counted %v times", c.verb, c.code, got)
		}
	}
}
