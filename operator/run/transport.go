package run

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Calls counts requests to the API server by verb and status code. There is one for the
// process, as there is for transports.
var Calls = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "gleaner_api_calls_total",
	Help: "Calls to the API server by verb and HTTP status code; 0 is a call without an answer.",
}, []string{"verb", "code"})

// Count wraps a transport so that its requests are counted. It is meant for
// rest.Config.Wrap.
func Count(next http.RoundTripper) http.RoundTripper { return counter{next} }

type counter struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	code := 0
	if response != nil {
		code = response.StatusCode
	}
	Calls.WithLabelValues(verb(r), strconv.Itoa(code)).Inc()
	return response, err
}

// verb returns the verb of a request, as RBAC names it. A path is /api/VERSION or
// /apis/GROUP/VERSION, then namespaces/NAMESPACE for namespaced objects, then the resource,
// and the name of a single object.
func verb(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return "discover"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	switch {
	case r.Method != http.MethodGet:
		return map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	case r.URL.Query().Get("watch") != "":
		return "watch"
	case len(parts) > 1:
		return "get"
	default:
		return "list"
	}
}
