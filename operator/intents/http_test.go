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
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	every    = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
)

// serve runs a server by plain HTTP that counts what it is asked.
func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s, &asked
}

// granting is a finalizer that may send requests to URLs, on loopback too.
func granting(urls ...string) intents.Behalf {
	on := intents.Behalf{Name: "ClusterFinalizer test"}
	for _, u := range urls {
		on.Grants.HTTP = append(on.Grants.HTTP, policies.HTTP{URL: u, Methods: every, Addresses: loopback})
	}
	return on
}

func ask(t *testing.T, on intents.Behalf, intent hostabi.HTTPIntent) hostabi.Result {
	t.Helper()
	return intents.New(intents.Options{}).Do(t.Context(), on, hostabi.Intent{ID: "a", HTTP: &intent})
}

func get(url string) hostabi.HTTPIntent { return hostabi.HTTPIntent{Method: "GET", URL: url} }

// fails makes sure that a result is this error.
func fails(t *testing.T, r hostabi.Result, reason hostabi.ErrorReason, words ...string) {
	t.Helper()
	if r.Error == nil || r.Error.Reason != reason {
		t.Fatalf("got %s, want %s", show(r), reason)
	}
	for _, word := range words {
		if !strings.Contains(r.Error.Message, word) {
			t.Errorf("no %q in %q", word, r.Error.Message)
		}
	}
}

func show(r hostabi.Result) string {
	switch {
	case r.Error != nil:
		return fmt.Sprintf("%s: %s", r.Error.Reason, r.Error.Message)
	case r.HTTP != nil:
		return fmt.Sprintf("%d %.200q", r.HTTP.Status, r.HTTP.Body)
	}
	return fmt.Sprintf("%+v", r)
}

func TestHTTP_SendsWhatTheModuleWroteAndShowsWhatCame(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header()["X-Several"] = []string{"a", "b"}
		w.Header().Set("Set-Cookie", "session=1")
		w.Header().Set("Date", "now")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.RequestURI, r.Header.Get("X-Mine"), r.UserAgent(), body)
	})
	got := ask(t, granting(s.URL+"/a/*"), hostabi.HTTPIntent{
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

func TestHTTP_WhatIsNotGrantedIsNotSent(t *testing.T) {
	s, asked := serve(t, func(http.ResponseWriter, *http.Request) {})
	on := granting(s.URL + "/a/*")
	on.Grants.HTTP[0].Methods = []string{"GET"}
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
		r := ask(t, on, hostabi.HTTPIntent{Method: c.method, URL: c.url})
		fails(t, r, c.reason)
		if strings.Contains(r.Error.Message, "hunter2") {
			t.Errorf("the password is in %q", r.Error.Message)
		}
	}
	if r := ask(t, on, get(s.URL+"/b?token=hunter2")); strings.Contains(r.Error.Message, "hunter2") {
		t.Errorf("the query is in %q", r.Error.Message)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestHTTP_MonitorReadsOnly(t *testing.T) {
	s, asked := serve(t, func(http.ResponseWriter, *http.Request) {})
	on := granting(s.URL + "/*")
	on.ReadOnly = true
	for _, method := range every[2:] {
		fails(t, ask(t, on, hostabi.HTTPIntent{Method: method, URL: s.URL}), hostabi.ErrorNotGranted, "Monitor")
	}
	for _, method := range every[:2] {
		if r := ask(t, on, hostabi.HTTPIntent{Method: method, URL: s.URL}); r.HTTP == nil {
			t.Errorf("%s: %s", method, show(r))
		}
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestHTTP_HeadersThatCannotBeSentAreRefused(t *testing.T) {
	for name, value := range map[string]string{
		"X-A\r\nHost": "evil", "X A": "a", "X-A": "a\r\nHost: evil", "Accept-Encoding": "gzip", "": "a",
	} {
		intent := get("http://127.0.0.1/")
		intent.Headers = map[string]string{name: value}
		fails(t, ask(t, granting("http://127.0.0.1/*"), intent), hostabi.ErrorInvalid)
	}
}

func TestHTTP_LongAndOddBodies(t *testing.T) {
	const most = 256 << 10
	bodies := map[string]string{
		"/fits":     strings.Repeat("x", most),
		"/longer":   strings.Repeat("x", most+1),
		"/cut":      "x" + strings.Repeat("é", most),
		"/no-text":  "\xff\x00",
		"/no-bytes": "",
	}
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, bodies[r.URL.Path]) })
	for path, want := range map[string]hostabi.HTTPResult{
		"/fits":     {Status: 200, Body: bodies["/fits"]},
		"/longer":   {Status: 200, Body: bodies["/fits"], Truncated: true},
		"/cut":      {Status: 200, Body: bodies["/cut"][:most-1], Truncated: true},
		"/no-text":  {Status: 200, BodyBase64: []byte("\xff\x00")},
		"/no-bytes": {Status: 200},
	} {
		r := ask(t, granting(s.URL+"/*"), get(s.URL+path))
		if r.HTTP == nil {
			t.Fatalf("%s: %s", path, show(r))
		}
		if diff := cmp.Diff(want, *r.HTTP, cmpopts.IgnoreFields(want, "Headers")); diff != "" {
			t.Errorf("%s (-want +got):\n%.500s", path, diff)
		}
	}
	large := hostabi.HTTPIntent{Method: "POST", URL: s.URL, Body: strings.Repeat("x", hostabi.MaxVerdictBytes+1)}
	fails(t, ask(t, granting(s.URL+"/*"), large), hostabi.ErrorInvalid, "1048576")
}

func TestHTTP_ManyHeadersAreLeftOut(t *testing.T) {
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
	for path, most := range map[string]int{"/many": 64, "/long": 20} {
		if r := ask(t, granting(s.URL+"/*"), get(s.URL+path)); r.HTTP == nil || len(r.HTTP.Headers) > most || len(r.HTTP.Headers) < 10 {
			t.Errorf("%s: %d headers", path, len(r.HTTP.Headers))
		}
	}
}

func TestHTTP_ABrokenAnswerIsNoAnswer(t *testing.T) {
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
	for path, says := range map[string]string{"/hangs-up": "hung up", "/nonsense": "no sense", "/upgrades": "else than HTTP"} {
		r := ask(t, granting(s.URL+"/*"), get(s.URL+path))
		fails(t, r, hostabi.ErrorUnavailable, says)
		if strings.Contains(r.Error.Message, "hunter2") {
			t.Errorf("the server is quoted: %s", r.Error.Message)
		}
	}
	s.Close()
	fails(t, ask(t, granting(s.URL+"/*"), get(s.URL)), hostabi.ErrorUnavailable, "refused")
}

func TestHTTP_EndsWithItsContext(t *testing.T) {
	begun := make(chan struct{})
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	intent := get(s.URL)
	r := intents.New(intents.Options{}).Do(ctx, granting(s.URL+"/*"), hostabi.Intent{ID: "a", HTTP: &intent})
	fails(t, r, hostabi.ErrorUnavailable, "canceled")
}

func TestHTTP_AServerIsLeftAloneForAsLongAsItAsks(t *testing.T) {
	const hour = "Fri, 02 Jan 2026 04:00:00 GMT"
	answer := http.StatusTooManyRequests
	s, asked := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.WriteHeader(answer)
	})
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	e := intents.New(intents.Options{Now: func() time.Time { return now }})
	on, other := granting(s.URL+"/*"), granting(s.URL+"/*")
	other.Name = "ClusterFinalizer other"
	asking := func(on intents.Behalf, after string) hostabi.Result {
		intent := get(s.URL + "/?after=" + after)
		return e.Do(t.Context(), on, hostabi.Intent{ID: "a", HTTP: &intent})
	}
	// The answer itself is the module's.
	if r := asking(on, "60"); r.HTTP == nil || r.HTTP.Status != answer || r.HTTP.Headers["Retry-After"] != "60" {
		t.Fatal(show(r))
	}
	fails(t, asking(on, "60"), hostabi.ErrorUnavailable, "2026-01-02T03:01:00Z")
	if r := asking(other, ""); r.HTTP == nil {
		t.Errorf("it did not ask the other one: %s", show(r))
	}
	now = now.Add(time.Minute)
	answer = http.StatusServiceUnavailable
	if r := asking(on, strings.ReplaceAll(hour, " ", "%20")); r.HTTP == nil {
		t.Fatal(show(r))
	}
	fails(t, asking(on, "60"), hostabi.ErrorUnavailable, "2026-01-02T03:11:00Z") // ten minutes at most
	now = now.Add(10 * time.Minute)
	answer = http.StatusOK
	for range 2 {
		if r := asking(on, "60"); r.HTTP == nil {
			t.Fatal(show(r))
		}
	}
	if n := asked.Load(); n != 5 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestHTTP_AMethodThatIsNotGrantedIsNotSentInAHeader(t *testing.T) {
	s, asked := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, name := range []string{"X-HTTP-Method", "x-http-method-override", "X-Method-Override"} {
		intent := get(s.URL)
		intent.Headers = map[string]string{name: "DELETE"}
		fails(t, ask(t, granting(s.URL+"/*"), intent), hostabi.ErrorNotGranted, "another method")
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}
