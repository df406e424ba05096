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

// serveTLS runs a TLS server whose certificate is in the ConfigMap ca.
func (w *env) serveTLS(h http.HandlerFunc) *httptest.Server {
	w.Helper()
	s := httptest.NewTLSServer(h)
	w.Cleanup(s.Close)
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Get(w.Context(), "ca", metav1.GetOptions{}); err != nil {
		w.createConfigMap("ca", map[string]string{"ca.crt": certificatePEM(s)}) // all httptest servers have the same
	}
	return s
}

func certificatePEM(s *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// grantHTTP allows requests to all URLs of a server.
func (w *env) grantHTTP(s *httptest.Server, change func(*policies.HTTPRule)) {
	h := policies.HTTPRule{
		URL: s.URL + "/*", Methods: []string{"GET", "POST", "PUT", "DELETE"},
		CA:        &policies.CASource{SecretKey: w.secretKey("ca", "ca.crt"), ConfigMap: true},
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}
	change(&h)
	w.on.Grants.HTTP = append(w.on.Grants.HTTP, h)
}

func (w *env) headerCredential(name, secret, key string) func(*policies.HTTPRule) {
	return func(h *policies.HTTPRule) { h.Headers = map[string]policies.SecretKey{name: w.secretKey(secret, key)} }
}

func (w *env) sendHTTP(method, url string, headers ...string) hostabi.Result {
	w.Helper()
	intent := &hostabi.HTTPIntent{Method: method, URL: url, Headers: map[string]string{}}
	for i := 0; i < len(headers); i += 2 {
		intent.Headers[headers[i]] = headers[i+1]
	}
	return w.execute(hostabi.Intent{HTTP: intent})
}

// expectRedacted checks that none of the words is in a result or in the logs.
func (w *env) expectRedacted(r hostabi.Result, words ...string) {
	w.Helper()
	text, err := json.Marshal(r)
	w.must(err)
	disclosed := strings.ToLower(string(text) + w.logged() + fmt.Sprintf("%+v %+v %+v", r.HTTP, r.Error, r))
	if r.HTTP != nil {
		disclosed += strings.ToLower(string(r.HTTP.BodyBase64))
	}
	for _, word := range words {
		if strings.Contains(disclosed, strings.ToLower(word)) {
			w.Errorf("%q is in %s or in the log: %s", word, describe(r), w.logged())
		}
	}
}

func TestHTTP_SendsTheCredentialsOfItsGrant(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	w.createSecret("token", map[string]string{"header": "Bearer " + password + "\n", "user": "somebody", "password": password})
	var got http.Header
	s := w.serveTLS(func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	for claim, c := range map[string]struct {
		change func(*policies.HTTPRule)
		want   string
	}{
		"a header, without the line's end": {w.headerCredential("authorization", "token", "header"), "Bearer " + password},
		"a user name and a password": {func(h *policies.HTTPRule) {
			h.BasicAuth = &policies.BasicAuth{Username: w.secretKey("token", "user"), Password: w.secretKey("token", "password")}
		}, "Basic " + base64.StdEncoding.EncodeToString([]byte("somebody:"+password))},
		"none": {func(*policies.HTTPRule) {}, ""},
	} {
		w.on.Grants.HTTP = nil
		w.grantHTTP(s, c.change)
		r := w.sendHTTP("GET", s.URL+"/a", "X-Mine", "m")
		if r.HTTP == nil || got.Get("Authorization") != c.want || got.Get("X-Mine") != "m" {
			t.Errorf("%s: sent %q; %s", claim, got, describe(r))
		}
		w.expectRedacted(r, password)
	}
}

func TestHTTP_TheFirstMatchingGrantApplies(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	w.createSecret("token", map[string]string{"narrow": "narrow-secret", "wide": "wide-secret"})
	s := w.serveTLS(func(out http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(out, "%d %d", len(r.Header.Get("X-Narrow")), len(r.Header.Get("X-Wide")))
	})
	w.grantHTTP(s, func(h *policies.HTTPRule) {
		w.headerCredential("X-Narrow", "token", "narrow")(h)
		h.URL, h.Methods = s.URL+"/narrow/*", []string{"GET"}
	})
	w.grantHTTP(s, w.headerCredential("X-Wide", "token", "wide"))
	for request, want := range map[string]string{"GET /narrow/a": "13 0", "DELETE /narrow/a": "0 11", "GET /a": "0 11"} {
		method, path, _ := strings.Cut(request, " ")
		if r := w.sendHTTP(method, s.URL+path); r.HTTP == nil || r.HTTP.Body != want {
			t.Errorf("%s: got %s, want %s", request, describe(r), want)
		}
	}
}

func TestHTTP_Redirect_SendsTheCredentialsOfItsGrant(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	w.createSecret("token", map[string]string{"begin": "begin-secret", "end": "end-secret"})
	var begun, ended http.Header
	end := w.serveTLS(func(out http.ResponseWriter, r *http.Request) {
		ended = r.Header
		_, _ = io.WriteString(out, "begin-secret end-secret") // both are redacted
	})
	begin := w.serveTLS(func(out http.ResponseWriter, r *http.Request) {
		begun = r.Header
		http.Redirect(out, r, end.URL+"/b/"+r.Header.Get("X-Begin"), http.StatusTemporaryRedirect)
	})
	w.grantHTTP(begin, w.headerCredential("X-Begin", "token", "begin"))
	r := w.sendHTTP("GET", begin.URL)
	w.expectError(r, hostabi.ErrorNotGranted, end.Listener.Addr().String()+"/b/***")
	w.expectRedacted(r, "begin-secret")
	if ended != nil {
		t.Fatal("redirect to a URL that is not granted was followed")
	}
	w.grantHTTP(end, w.headerCredential("X-End", "token", "end"))
	r = w.sendHTTP("GET", begin.URL)
	if r.HTTP == nil || r.HTTP.Body != "*** ***" {
		t.Error(describe(r))
	}
	if begun.Get("X-Begin") != "begin-secret" || begun.Get("X-End") != "" || ended.Get("X-Begin") != "" || ended.Get("X-End") != "end-secret" {
		t.Errorf("sent %q, then %q", begun, ended)
	}
	w.expectError(w.sendHTTP("GET", begin.URL, "X-End", "mine"), hostabi.ErrorNotGranted, "X-End") // written by the host after the redirect
}

func TestHTTP_EchoedCredentials_AreRedacted(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	w.createSecret("token", map[string]string{"header": "Bearer " + password, "user": "somebody", "password": password})
	header := ""
	raw := func(out http.ResponseWriter, text string) {
		conn, _, err := out.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
	s := w.serveTLS(func(out http.ResponseWriter, r *http.Request) {
		header = r.Header.Get("Authorization")
		switch r.URL.Path {
		case "/body":
			_ = r.Header.Write(out)
		case "/json":
			_ = json.NewEncoder(out).Encode(r.Header)
		case "/binary":
			_, _ = io.WriteString(out, "\xff"+header)
		case "/late": // beyond the host's read limit
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
		case "/more": // than Content-Length: net/http logs data on an idle connection
			raw(out, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"+header)
		}
	})
	basic := func(h *policies.HTTPRule) {
		h.BasicAuth = &policies.BasicAuth{Username: w.secretKey("token", "user"), Password: w.secretKey("token", "password")}
	}
	for name, change := range map[string]func(*policies.HTTPRule){"header": w.headerCredential("Authorization", "token", "header"), "basic": basic} {
		w.on.Grants.HTTP = nil
		w.grantHTTP(s, func(h *policies.HTTPRule) { change(h); h.Methods = []string{"GET"} })
		w.on.Grants.HTTP[0].URL = s.URL + "/*"
		for _, path := range []string{
			"/body", "/json", "/binary", "/late", "/header", "/path", "/query", "/host", "/no-location", "/status", "/no-header", "/no-http",
			"/no-length", "/no-encoding", "/no-chunk", "/more",
		} {
			header = ""
			r := w.sendHTTP("GET", s.URL+path)
			if header == "" {
				t.Errorf("%s %s: no credentials were sent: %s", name, path, describe(r))
			}
			_, token, _ := strings.Cut(header, " ")
			w.expectRedacted(r, password, "hunter2-", token, token[:len(token)-2])
		}
	}
}

func TestHTTP_UnreadableCredentials_AreNotSent(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	w.createAccount("blind", "configmaps get")
	w.createSecret("token", map[string]string{"two": "a\nb", "empty": "\n", "good": password, "colon": "me:hunter2-"})
	w.createSecret("ca", map[string]string{"none": "not a certificate"})
	var requests atomic.Int64
	s := w.serveTLS(func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	for claim, c := range map[string]struct {
		change  func(*policies.HTTPRule)
		account string
		reason  hostabi.ErrorReason
		says    string
	}{
		"a Secret that the account may not read": {w.headerCredential("X-A", "token", "good"), "blind", hostabi.ErrorForbidden, "blind"},
		"a missing Secret":                       {w.headerCredential("X-A", "none", "good"), "worker", hostabi.ErrorUnavailable, `"none" not found`},
		"a missing entry":                        {w.headerCredential("X-A", "token", "none"), "worker", hostabi.ErrorUnavailable, "has no key none"},
		"an empty entry":                         {w.headerCredential("X-A", "token", "empty"), "worker", hostabi.ErrorUnavailable, "is empty"},
		"a header of two lines":                  {w.headerCredential("X-A", "token", "two"), "worker", hostabi.ErrorUnavailable, "line break"},
		"a user name with a colon": {func(h *policies.HTTPRule) {
			h.BasicAuth = &policies.BasicAuth{Username: w.secretKey("token", "colon"), Password: w.secretKey("token", "good")}
		}, "worker", hostabi.ErrorUnavailable, "colon"},
		"an invalid certificate": {func(h *policies.HTTPRule) {
			h.CA = &policies.CASource{SecretKey: w.secretKey("ca", "none")}
		}, "worker", hostabi.ErrorUnavailable, "by ca of a grant"},
		"a Secret of another namespace": {func(h *policies.HTTPRule) {
			w.headerCredential("X-A", "token", "good")(h)
			ref := h.Headers["X-A"]
			ref.Namespace = "kube-system"
			h.Headers["X-A"] = ref
		}, "worker", hostabi.ErrorNotGranted, "kube-system"},
		"no service account": {w.headerCredential("X-A", "token", "good"), "", hostabi.ErrorNotGranted, "no serviceAccount"},
	} {
		t.Run(claim, func(t *testing.T) {
			at := *w // a copy that reports errors to this subtest
			at.T, at.on.Grants.HTTP, at.on.Account.Name = t, nil, c.account
			if c.account == "" {
				at.on.Account = policies.ServiceAccount{}
			}
			at.grantHTTP(s, c.change)
			r := at.sendHTTP("GET", s.URL)
			at.expectError(r, c.reason, c.says)
			at.expectRedacted(r, "hunter2-")
		})
	}
	w.grantHTTP(s, w.headerCredential("X-A", "token", "good"))
	w.expectError(w.sendHTTP("GET", s.URL, "x-a", "mine"), hostabi.ErrorNotGranted, "header X-A of requests")
	if n := requests.Load(); n != 0 {
		t.Errorf("server got %d requests", n)
	}
}

func TestHTTP_ChangedSecret_IsReadAgain(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	w.createSecret("token", map[string]string{"t": "first-secret"})
	got := ""
	s := w.serveTLS(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("X-A") })
	w.grantHTTP(s, w.headerCredential("X-A", "token", "t"))
	if r := w.sendHTTP("GET", s.URL); r.HTTP == nil || got != "first-secret" {
		t.Fatalf("sent %q; %s", got, describe(r))
	}
	w.must(w.client.CoreV1().Secrets(w.ns).Delete(t.Context(), "token", metav1.DeleteOptions{}))
	w.createSecret("token", map[string]string{"t": "second-secret"})
	w.advance(5 * time.Second)
	if r := w.sendHTTP("GET", s.URL); r.HTTP == nil || got != "second-secret" {
		t.Errorf("sent %q; %s", got, describe(r))
	}
}

func TestHTTP_ServersAreVerifiedByTheGrantsCA(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	s := w.serveTLS(func(http.ResponseWriter, *http.Request) {})
	w.createSecret("ca", map[string]string{"tls.crt": certificatePEM(s)})
	for claim, c := range map[string]struct {
		ca   *policies.CASource
		fine bool
	}{
		"of a ConfigMap":           {&policies.CASource{SecretKey: w.secretKey("ca", "ca.crt"), ConfigMap: true}, true},
		"of a Secret":              {&policies.CASource{SecretKey: w.secretKey("ca", "tls.crt")}, true},
		"not without certificates": {nil, false},
	} {
		w.on.Grants.HTTP = nil
		w.grantHTTP(s, func(h *policies.HTTPRule) { h.CA = c.ca })
		r := w.sendHTTP("GET", s.URL)
		if c.fine && r.HTTP == nil {
			t.Errorf("%s: %s", claim, describe(r))
		} else if !c.fine {
			w.expectError(r, hostabi.ErrorUnavailable, "certificate is not trusted", "ca of the grant")
		}
	}
	plain := strings.Replace(s.URL, "https://", "http://", 1)
	w.expectError(w.sendHTTP("GET", plain), hostabi.ErrorNotGranted)
}

func TestIntents_AreExecutedInParallel(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	w.grantRead("configmaps")
	w.createConfigMap("a", nil)
	w.createSecret("token", map[string]string{"t": "some-secret"})
	s := w.serveTLS(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Retry-After", "1")
		_, _ = io.WriteString(out, r.Header.Get("X-A"))
	})
	w.grantHTTP(s, w.headerCredential("X-A", "token", "t"))
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
			t.Error(describe(r))
		}
	}
}

// noDNS resolves no names: tests connect only to loopback.
var noDNS = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}}
