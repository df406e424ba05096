package intents_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/policies"
)

var (
	loopback   = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	allMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
)

// serve runs a plain HTTP server that counts requests.
func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s, &requests
}

// grantURLs returns a finalizer that may send requests to URLs, including loopback.
func grantURLs(urls ...string) intents.Identity {
	identity := intents.Identity{Name: "ClusterFinalizer test"}
	for _, u := range urls {
		identity.Grants.HTTP = append(identity.Grants.HTTP, policies.HTTPRule{URL: u, Methods: allMethods, Addresses: loopback})
	}
	return identity
}

func doHTTP(t *testing.T, identity intents.Identity, intent hostabi.HTTPIntent) hostabi.Result {
	t.Helper()
	return intents.New(intents.Options{}).Do(t.Context(), identity, hostabi.Intent{ID: "a", HTTP: &intent})
}

func get(url string) hostabi.HTTPIntent { return hostabi.HTTPIntent{Method: "GET", URL: url} }

// wantError asserts that a result has the error.
func wantError(t *testing.T, r hostabi.Result, reason hostabi.ErrorReason, words ...string) {
	t.Helper()
	if r.Error == nil || r.Error.Reason != reason {
		t.Fatalf("got %s, want %s", describe(r), reason)
	}
	for _, word := range words {
		if !strings.Contains(r.Error.Message, word) {
			t.Errorf("no %q in %q", word, r.Error.Message)
		}
	}
}

func describe(r hostabi.Result) string {
	switch {
	case r.Error != nil:
		return fmt.Sprintf("%s: %s", r.Error.Reason, r.Error.Message)
	case r.HTTP != nil:
		return fmt.Sprintf("%d %.200q", r.HTTP.Status, r.HTTP.Body)
	}
	return fmt.Sprintf("%+v", r)
}

func TestHTTP_SendsTheIntentAndReturnsTheResponse(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header()["X-Several"] = []string{"a", "b"}
		w.Header().Set("Set-Cookie", "session=1")
		w.Header().Set("Date", "now")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.RequestURI, r.Header.Get("X-Mine"), r.UserAgent(), body)
	})
	got := doHTTP(t, grantURLs(s.URL+"/a/*"), hostabi.HTTPIntent{
		Method: "PUT", URL: s.URL + "/a/b%20c?d=e", Headers: map[string]string{"X-Mine": "mine"}, Body: "body",
	})
	want := hostabi.Result{HTTP: &hostabi.HTTPResult{
		Status: http.StatusTeapot, Body: "PUT /a/b%20c?d=e mine gleaner body",
		Headers: map[string]string{
			"X-Several": "a, b", "Date": "now", "Content-Length": "34", "Content-Type": "text/plain; charset=utf-8",
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestHTTP_RejectsRequestsWithoutGrant(t *testing.T) {
	s, requests := serve(t, func(http.ResponseWriter, *http.Request) {})
	identity := grantURLs(s.URL + "/a/*")
	identity.Grants.HTTP[0].Methods = []string{"GET"}
	for _, c := range []struct {
		method, url string
		reason      hostabi.ErrorReason
	}{
		{"GET", s.URL + "/b", hostabi.ErrorNotGranted},
		{"GET", s.URL + "/a", hostabi.ErrorNotGranted},
		{"DELETE", s.URL + "/a/b", hostabi.ErrorNotGranted},
		{"GET", strings.Replace(s.URL, "http:", "https:", 1) + "/a/b", hostabi.ErrorNotGranted},
		{"GET", strings.Replace(s.URL, "127.0.0.1", "127.0.0.2", 1) + "/a/b", hostabi.ErrorNotGranted},
		{"GET", s.URL + "/a/../b", hostabi.ErrorInvalid},
		{"GET", s.URL + "/a/%2e%2e/b", hostabi.ErrorInvalid},
		{"GET", s.URL + "/a/..%2fb", hostabi.ErrorInvalid},
		{"GET", s.URL + `/a\..\..\b`, hostabi.ErrorInvalid},
		{"GET", strings.Replace(s.URL, "http://", "http://me:hunter2@", 1) + "/a/b", hostabi.ErrorInvalid},
		{"GET", "/a/b", hostabi.ErrorInvalid},
	} {
		r := doHTTP(t, identity, hostabi.HTTPIntent{Method: c.method, URL: c.url})
		wantError(t, r, c.reason)
		if strings.Contains(r.Error.Message, "hunter2") {
			t.Errorf("the password is in %q", r.Error.Message)
		}
	}
	if r := doHTTP(t, identity, get(s.URL+"/b?token=hunter2")); strings.Contains(r.Error.Message, "hunter2") {
		t.Errorf("the query is in %q", r.Error.Message)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the server received %d requests", n)
	}
}

func TestHTTP_MonitorReadsOnly(t *testing.T) {
	s, requests := serve(t, func(http.ResponseWriter, *http.Request) {})
	identity := grantURLs(s.URL + "/*")
	identity.ReadOnly = true
	for _, method := range allMethods[2:] {
		wantError(t, doHTTP(t, identity, hostabi.HTTPIntent{Method: method, URL: s.URL}), hostabi.ErrorNotGranted, "Monitor")
	}
	for _, method := range allMethods[:2] {
		if r := doHTTP(t, identity, hostabi.HTTPIntent{Method: method, URL: s.URL}); r.HTTP == nil {
			t.Errorf("%s: %s", method, describe(r))
		}
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("the server received %d requests", n)
	}
}

func TestHTTP_RejectsInvalidHeaders(t *testing.T) {
	for name, value := range map[string]string{
		"X-A\r\nHost": "evil", "X A": "a", "X-A": "a\r\nHost: evil", "Accept-Encoding": "gzip", "": "a",
	} {
		intent := get("http://127.0.0.1/")
		intent.Headers = map[string]string{name: value}
		wantError(t, doHTTP(t, grantURLs("http://127.0.0.1/*"), intent), hostabi.ErrorInvalid)
	}
}

func TestHTTP_TruncatesAndEncodesBodies(t *testing.T) {
	const maxBytes = 256 << 10
	bodies := map[string]string{
		"/fits":     strings.Repeat("x", maxBytes),
		"/longer":   strings.Repeat("x", maxBytes+1),
		"/cut":      "x" + strings.Repeat("é", maxBytes),
		"/no-text":  "\xff\x00",
		"/no-bytes": "",
	}
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, bodies[r.URL.Path]) })
	for path, want := range map[string]hostabi.HTTPResult{
		"/fits":     {Status: 200, Body: bodies["/fits"]},
		"/longer":   {Status: 200, Body: bodies["/fits"], Truncated: true},
		"/cut":      {Status: 200, Body: bodies["/cut"][:maxBytes-1], Truncated: true},
		"/no-text":  {Status: 200, BodyBase64: []byte("\xff\x00")},
		"/no-bytes": {Status: 200},
	} {
		r := doHTTP(t, grantURLs(s.URL+"/*"), get(s.URL+path))
		if r.HTTP == nil {
			t.Fatalf("%s: %s", path, describe(r))
		}
		if diff := cmp.Diff(want, *r.HTTP, cmpopts.IgnoreFields(want, "Headers")); diff != "" {
			t.Errorf("%s (-want +got):\n%.500s", path, diff)
		}
	}
	large := hostabi.HTTPIntent{Method: "POST", URL: s.URL, Body: strings.Repeat("x", hostabi.MaxVerdictBytes+1)}
	wantError(t, doHTTP(t, grantURLs(s.URL+"/*"), large), hostabi.ErrorInvalid, "1048576")
}

func TestHTTP_LimitsResponseHeaders(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		long := strings.Repeat("x", 1000)
		for i := range 200 {
			value := "x"
			if r.URL.Path == "/long" && i < 30 {
				value = long
			}
			w.Header().Set(fmt.Sprintf("X-%03d", i), value)
		}
	})
	for path, limit := range map[string]int{"/many": 64, "/long": 20} {
		if r := doHTTP(t, grantURLs(s.URL+"/*"), get(s.URL+path)); r.HTTP == nil || len(r.HTTP.Headers) > limit || len(r.HTTP.Headers) < 10 {
			t.Errorf("%s: %d headers", path, len(r.HTTP.Headers))
		}
	}
}

func TestHTTP_RejectsInvalidResponses(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hangs-up":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		case "/nonsense":
			conn, out, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			_, _ = out.WriteString("HTTP/1.1 200 OK\r\nnonsense hunter2\r\n\r\n")
			_ = out.Flush()
			_ = conn.Close()
		case "/upgrades":
			w.Header().Set("Upgrade", "other")
			w.Header().Set("Connection", "upgrade")
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	})
	for path, want := range map[string]string{"/hangs-up": "closed the connection", "/nonsense": "invalid response", "/upgrades": "protocol upgrade"} {
		r := doHTTP(t, grantURLs(s.URL+"/*"), get(s.URL+path))
		wantError(t, r, hostabi.ErrorUnavailable, want)
		if strings.Contains(r.Error.Message, "hunter2") {
			t.Errorf("the server is quoted: %s", r.Error.Message)
		}
	}
	s.Close()
	wantError(t, doHTTP(t, grantURLs(s.URL+"/*"), get(s.URL)), hostabi.ErrorUnavailable, "refused")
}

func TestHTTP_StopsWithItsContext(t *testing.T) {
	started := make(chan struct{})
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		close(started)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	intent := get(s.URL)
	r := intents.New(intents.Options{}).Do(ctx, grantURLs(s.URL+"/*"), hostabi.Intent{ID: "a", HTTP: &intent})
	wantError(t, r, hostabi.ErrorUnavailable, "canceled")
}

func TestHTTP_HonorsRetryAfter(t *testing.T) {
	const hour = "Fri, 02 Jan 2026 04:00:00 GMT"
	status := http.StatusTooManyRequests
	s, requests := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.WriteHeader(status)
	})
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	e := intents.New(intents.Options{Now: func() time.Time { return now }})
	identity, other := grantURLs(s.URL+"/*"), grantURLs(s.URL+"/*")
	other.Name = "ClusterFinalizer other"
	do := func(identity intents.Identity, after string) hostabi.Result {
		intent := get(s.URL + "/?after=" + after)
		return e.Do(t.Context(), identity, hostabi.Intent{ID: "a", HTTP: &intent})
	}
	// The module receives the response itself.
	if r := do(identity, "60"); r.HTTP == nil || r.HTTP.Status != status || r.HTTP.Headers["Retry-After"] != "60" {
		t.Fatal(describe(r))
	}
	wantError(t, do(identity, "60"), hostabi.ErrorUnavailable, "2026-01-02T03:01:00Z")
	if r := do(other, ""); r.HTTP == nil {
		t.Errorf("the other finalizer did not send Retry-After: %s", describe(r))
	}
	now = now.Add(time.Minute)
	status = http.StatusServiceUnavailable
	if r := do(identity, strings.ReplaceAll(hour, " ", "%20")); r.HTTP == nil {
		t.Fatal(describe(r))
	}
	wantError(t, do(identity, "60"), hostabi.ErrorUnavailable, "2026-01-02T03:11:00Z") // ten minutes at most
	now = now.Add(10 * time.Minute)
	status = http.StatusOK
	for range 2 {
		if r := do(identity, "60"); r.HTTP == nil {
			t.Fatal(describe(r))
		}
	}
	if n := requests.Load(); n != 5 {
		t.Errorf("the server received %d requests", n)
	}
}

func TestHTTP_RejectsMethodOverrideHeaders(t *testing.T) {
	s, requests := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, name := range []string{"X-HTTP-Method", "x-http-method-override", "X-Method-Override"} {
		intent := get(s.URL)
		intent.Headers = map[string]string{name: "DELETE"}
		wantError(t, doHTTP(t, grantURLs(s.URL+"/*"), intent), hostabi.ErrorNotGranted, "granted method")
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the server received %d requests", n)
	}
}
