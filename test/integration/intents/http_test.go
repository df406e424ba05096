package intents

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

const password = "hunter2-Ωmega/+&<x>"

// serve runs a server by TLS whose certificate is in the ConfigMap ca.
func (w *world) serve(h http.HandlerFunc) *httptest.Server {
	w.Helper()
	s := httptest.NewTLSServer(h)
	w.Cleanup(s.Close)
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Get(w.Context(), "ca", metav1.GetOptions{}); err != nil {
		w.configMap("ca", map[string]string{"ca.crt": certificate(s)}) // all such servers have one
	}
	return s
}

func certificate(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// grant allows requests to all of a server.
func (w *world) grant(s *httptest.Server, change func(*policies.HTTP)) {
	h := policies.HTTP{
		URL: s.URL + "/*", Methods: []string{"GET", "POST", "PUT", "DELETE"},
		CA:        &policies.Certificates{SecretKey: w.key("ca", "ca.crt"), ConfigMap: true},
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}
	change(&h)
	w.on.Grants.HTTP = append(w.on.Grants.HTTP, h)
}

func (w *world) header(name, secret, key string) func(*policies.HTTP) {
	return func(h *policies.HTTP) { h.Headers = map[string]policies.SecretKey{name: w.key(secret, key)} }
}

func (w *world) http(method, url string, headers ...string) hostabi.Result {
	w.Helper()
	intent := &hostabi.HTTPIntent{Method: method, URL: url, Headers: map[string]string{}}
	for i := 0; i < len(headers); i += 2 {
		intent.Headers[headers[i]] = headers[i+1]
	}
	return w.asks(hostabi.Intent{HTTP: intent})
}

// keeps makes sure that none of the words is in a result, nor in what was logged.
func (w *world) keeps(r hostabi.Result, words ...string) {
	w.Helper()
	text, err := json.Marshal(r)
	w.must(err)
	said := strings.ToLower(string(text) + w.logged() + fmt.Sprintf("%+v %+v %+v", r.HTTP, r.Error, r))
	if r.HTTP != nil {
		said += strings.ToLower(string(r.HTTP.BodyBase64))
	}
	for _, word := range words {
		if strings.Contains(said, strings.ToLower(word)) {
			w.Errorf("%q is in %s or in the log: %s", word, show(r), w.logged())
		}
	}
}

func TestHTTP_HasTheCredentialsOfItsGrant(t *testing.T) {
	w := newWorld(t, "secrets get", "configmaps get")
	w.secret("token", map[string]string{"header": "Bearer " + password + "\n", "user": "somebody", "password": password})
	var got http.Header
	s := w.serve(func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	for claim, c := range map[string]struct {
		change func(*policies.HTTP)
		want   string
	}{
		"a header, without the line's end": {w.header("authorization", "token", "header"), "Bearer " + password},
		"a user name and a password": {func(h *policies.HTTP) {
			h.Basic = &policies.Basic{Username: w.key("token", "user"), Password: w.key("token", "password")}
		}, "Basic " + base64.StdEncoding.EncodeToString([]byte("somebody:"+password))},
		"none": {func(*policies.HTTP) {}, ""},
	} {
		w.on.Grants.HTTP = nil
		w.grant(s, c.change)
		r := w.http("GET", s.URL+"/a", "X-Mine", "m")
		if r.HTTP == nil || got.Get("Authorization") != c.want || got.Get("X-Mine") != "m" {
			t.Errorf("%s: sent %q; %s", claim, got, show(r))
		}
		w.keeps(r, password)
	}
}

func TestHTTP_TheFirstGrantThatMatchesCounts(t *testing.T) {
	w := newWorld(t, "secrets get", "configmaps get")
	w.secret("token", map[string]string{"narrow": "narrow-secret", "wide": "wide-secret"})
	s := w.serve(func(out http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(out, "%d %d", len(r.Header.Get("X-Narrow")), len(r.Header.Get("X-Wide")))
	})
	w.grant(s, func(h *policies.HTTP) {
		w.header("X-Narrow", "token", "narrow")(h)
		h.URL, h.Methods = s.URL+"/narrow/*", []string{"GET"}
	})
	w.grant(s, w.header("X-Wide", "token", "wide"))
	for request, want := range map[string]string{"GET /narrow/a": "13 0", "DELETE /narrow/a": "0 11", "GET /a": "0 11"} {
		method, path, _ := strings.Cut(request, " ")
		if r := w.http(method, s.URL+path); r.HTTP == nil || r.HTTP.Body != want {
			t.Errorf("%s: got %s, want %s", request, show(r), want)
		}
	}
}

func TestHTTP_ARedirectGetsTheCredentialsOfItsOwnGrant(t *testing.T) {
	w := newWorld(t, "secrets get", "configmaps get")
	w.secret("token", map[string]string{"begin": "begin-secret", "end": "end-secret"})
	var begun, ended http.Header
	end := w.serve(func(out http.ResponseWriter, r *http.Request) {
		ended = r.Header
		_, _ = io.WriteString(out, "begin-secret end-secret") // both are masked
	})
	begin := w.serve(func(out http.ResponseWriter, r *http.Request) {
		begun = r.Header
		http.Redirect(out, r, end.URL+"/b/"+r.Header.Get("X-Begin"), http.StatusTemporaryRedirect)
	})
	w.grant(begin, w.header("X-Begin", "token", "begin"))
	r := w.http("GET", begin.URL)
	w.fails(r, hostabi.ErrorNotGranted, end.Listener.Addr().String()+"/b/***")
	w.keeps(r, "begin-secret")
	if ended != nil {
		t.Fatal("it was followed to where nothing is granted")
	}
	w.grant(end, w.header("X-End", "token", "end"))
	r = w.http("GET", begin.URL)
	if r.HTTP == nil || r.HTTP.Body != "*** ***" {
		t.Error(show(r))
	}
	if begun.Get("X-Begin") != "begin-secret" || begun.Get("X-End") != "" || ended.Get("X-Begin") != "" || ended.Get("X-End") != "end-secret" {
		t.Errorf("sent %q, then %q", begun, ended)
	}
	w.fails(w.http("GET", begin.URL, "X-End", "mine"), hostabi.ErrorNotGranted, "X-End") // the host's, on the second step
}

func TestHTTP_AServerThatEchoesShowsNoCredentials(t *testing.T) {
	w := newWorld(t, "secrets get", "configmaps get")
	w.secret("token", map[string]string{"header": "Bearer " + password, "user": "somebody", "password": password})
	header := ""
	raw := func(out http.ResponseWriter, text string) {
		conn, _, err := out.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
	s := w.serve(func(out http.ResponseWriter, r *http.Request) {
		header = r.Header.Get("Authorization")
		switch r.URL.Path {
		case "/body":
			_ = r.Header.Write(out)
		case "/json":
			_ = json.NewEncoder(out).Encode(r.Header)
		case "/binary":
			_, _ = io.WriteString(out, "\xff"+header)
		case "/late": // where the host stops reading
			_, _ = io.WriteString(out, strings.Repeat("x", 256<<10-20)+header)
		case "/header":
			out.Header().Set("X-Echo", header)
			out.Header()["X-"+base64.RawURLEncoding.EncodeToString([]byte(password))] = []string{"x"}
		case "/path":
			http.Redirect(out, r, "/elsewhere/"+header, http.StatusFound)
		case "/query":
			http.Redirect(out, r, "https://other.example.com/?"+header, http.StatusFound)
		case "/host":
			http.Redirect(out, r, "https://"+password[:7]+".example.com/", http.StatusFound)
		case "/no-location":
			raw(out, "HTTP/1.1 302 Found\r\nLocation: ://"+header+"\r\n\r\n")
		case "/status":
			raw(out, "HTTP/1.1 "+header+"\r\n\r\n")
		case "/no-header":
			raw(out, "HTTP/1.1 200 OK\r\n"+header+"\r\n\r\n")
		case "/no-http":
			raw(out, header)
		case "/no-length":
			raw(out, "HTTP/1.1 200 OK\r\nContent-Length: "+header+"\r\n\r\n")
		case "/no-encoding":
			raw(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: "+header+"\r\n\r\n")
		case "/no-chunk":
			raw(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+header+"\r\n")
		case "/more": // than it said: net/http logs what comes on an idle connection
			raw(out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"+header)
		}
	})
	basic := func(h *policies.HTTP) {
		h.Basic = &policies.Basic{Username: w.key("token", "user"), Password: w.key("token", "password")}
	}
	for name, change := range map[string]func(*policies.HTTP){"header": w.header("Authorization", "token", "header"), "basic": basic} {
		w.on.Grants.HTTP = nil
		w.grant(s, func(h *policies.HTTP) { change(h); h.Methods = []string{"GET"} })
		w.on.Grants.HTTP[0].URL = s.URL + "/*"
		for _, path := range []string{
			"/body", "/json", "/binary", "/late", "/header", "/path", "/query", "/host", "/no-location", "/status", "/no-header", "/no-http",
			"/no-length", "/no-encoding", "/no-chunk", "/more",
		} {
			header = ""
			r := w.http("GET", s.URL+path)
			if header == "" {
				t.Errorf("%s %s: the server was sent no credentials: %s", name, path, show(r))
			}
			_, token, _ := strings.Cut(header, " ")
			w.keeps(r, password, "hunter2-", token, token[:len(token)-2])
		}
	}
}

func TestHTTP_CredentialsThatCannotBeReadAreNotSent(t *testing.T) {
	w := newWorld(t, "secrets get", "configmaps get")
	w.account("blind", "configmaps get")
	w.secret("token", map[string]string{"two": "a\nb", "empty": "\n", "good": password, "colon": "me:hunter2-"})
	w.secret("ca", map[string]string{"none": "not a certificate"})
	var asked atomic.Int64
	s := w.serve(func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	for claim, c := range map[string]struct {
		change  func(*policies.HTTP)
		account string
		reason  hostabi.ErrorReason
		says    string
	}{
		"a Secret that the account may not read": {w.header("X-A", "token", "good"), "blind", hostabi.ErrorForbidden, "blind"},
		"a Secret that is not there":             {w.header("X-A", "none", "good"), "worker", hostabi.ErrorUnavailable, `"none" not found`},
		"an entry that is not there":             {w.header("X-A", "token", "none"), "worker", hostabi.ErrorUnavailable, "has no entry none"},
		"an empty entry":                         {w.header("X-A", "token", "empty"), "worker", hostabi.ErrorUnavailable, "is empty"},
		"a header of two lines":                  {w.header("X-A", "token", "two"), "worker", hostabi.ErrorUnavailable, "several lines"},
		"a user name with a colon": {func(h *policies.HTTP) {
			h.Basic = &policies.Basic{Username: w.key("token", "colon"), Password: w.key("token", "good")}
		}, "worker", hostabi.ErrorUnavailable, "colon"},
		"a certificate that is none": {func(h *policies.HTTP) {
			h.CA = &policies.Certificates{SecretKey: w.key("ca", "none")}
		}, "worker", hostabi.ErrorUnavailable, "for its ca"},
		"a Secret of another namespace": {func(h *policies.HTTP) {
			w.header("X-A", "token", "good")(h)
			ref := h.Headers["X-A"]
			ref.Namespace = "kube-system"
			h.Headers["X-A"] = ref
		}, "worker", hostabi.ErrorNotGranted, "kube-system"},
		"no service account": {w.header("X-A", "token", "good"), "", hostabi.ErrorNotGranted, "no serviceAccount"},
	} {
		t.Run(claim, func(t *testing.T) {
			at := *w // the same world, with its errors in this test
			at.T, at.on.Grants.HTTP, at.on.Account.Name = t, nil, c.account
			if c.account == "" {
				at.on.Account = policies.Account{}
			}
			at.grant(s, c.change)
			r := at.http("GET", s.URL)
			at.fails(r, c.reason, c.says)
			at.keeps(r, "hunter2-")
		})
	}
	w.grant(s, w.header("X-A", "token", "good"))
	w.fails(w.http("GET", s.URL, "x-a", "mine"), hostabi.ErrorNotGranted, "the host writes the header X-A")
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestHTTP_ASecretThatChangesIsReadAnew(t *testing.T) {
	w := newWorld(t, "secrets get", "configmaps get")
	w.secret("token", map[string]string{"t": "first-secret"})
	got := ""
	s := w.serve(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("X-A") })
	w.grant(s, w.header("X-A", "token", "t"))
	if r := w.http("GET", s.URL); r.HTTP == nil || got != "first-secret" {
		t.Fatalf("sent %q; %s", got, show(r))
	}
	w.must(w.client.CoreV1().Secrets(w.ns).Delete(t.Context(), "token", metav1.DeleteOptions{}))
	w.secret("token", map[string]string{"t": "second-secret"})
	w.later(5 * time.Second)
	if r := w.http("GET", s.URL); r.HTTP == nil || got != "second-secret" {
		t.Errorf("sent %q; %s", got, show(r))
	}
}

func TestHTTP_ServersAreBelievedByTheGrantsCertificates(t *testing.T) {
	w := newWorld(t, "secrets get", "configmaps get")
	s := w.serve(func(http.ResponseWriter, *http.Request) {})
	w.secret("ca", map[string]string{"tls.crt": certificate(s)})
	for claim, c := range map[string]struct {
		ca   *policies.Certificates
		fine bool
	}{
		"of a ConfigMap":    {&policies.Certificates{SecretKey: w.key("ca", "ca.crt"), ConfigMap: true}, true},
		"of a Secret":       {&policies.Certificates{SecretKey: w.key("ca", "tls.crt")}, true},
		"not without being": {nil, false},
	} {
		w.on.Grants.HTTP = nil
		w.grant(s, func(h *policies.HTTP) { h.CA = c.ca })
		r := w.http("GET", s.URL)
		if c.fine && r.HTTP == nil {
			t.Errorf("%s: %s", claim, show(r))
		} else if !c.fine {
			w.fails(r, hostabi.ErrorUnavailable, "certificate is not believed", "ca of the grant")
		}
	}
	plain := strings.Replace(s.URL, "https://", "http://", 1)
	w.fails(w.http("GET", plain), hostabi.ErrorNotGranted)
}

func TestManyIntentsAreCarriedOutAtOnce(t *testing.T) {
	w := newWorld(t, "secrets get", "configmaps get")
	w.reads("configmaps")
	w.configMap("a", nil)
	w.secret("token", map[string]string{"t": "some-secret"})
	s := w.serve(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Retry-After", "1")
		_, _ = io.WriteString(out, r.Header.Get("X-A"))
	})
	w.grant(s, w.header("X-A", "token", "t"))
	results := make(chan hostabi.Result)
	for i := range 20 {
		intent := hostabi.Intent{ID: "a", HTTP: &hostabi.HTTPIntent{Method: "GET", URL: s.URL}}
		if i%2 == 0 {
			intent = hostabi.Intent{ID: "a", Get: &hostabi.GetIntent{Target: w.target("a")}}
		}
		go func() { results <- w.do.Do(t.Context(), w.on, intent) }()
	}
	for range 20 {
		if r := <-results; r.Error != nil || r.HTTP != nil && r.HTTP.Body != "***" {
			t.Error(show(r))
		}
	}
}

// nowhere finds no names: tests ask nobody beyond loopback.
var nowhere = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}}
