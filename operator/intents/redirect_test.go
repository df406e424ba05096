package intents_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
)

func TestHTTP_FollowsGrantedRedirects(t *testing.T) {
	end, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %q auth=%q type=%q mine=%q", r.Method, r.RequestURI, body,
			r.Header.Get("Authorization"), r.Header.Get("Content-Type"), r.Header.Get("X-Mine"))
	})
	begin, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/found":
			http.Redirect(w, r, end.URL+"/to?q=1#fragment", http.StatusFound)
		case "/temporary":
			http.Redirect(w, r, end.URL+"/to", http.StatusTemporaryRedirect)
		case "/here":
			w.Header().Set("Location", "../there") // a relative reference
			w.WriteHeader(http.StatusSeeOther)
		case "/there":
			_, _ = fmt.Fprintf(w, "%s auth=%q", r.Method, r.Header.Get("Authorization"))
		}
	})
	for path, c := range map[string]struct{ method, want string }{
		"/found":     {"GET", `GET /to?q=1 "" auth="" type="text/plain" mine="m"`},
		"/temporary": {"POST", `POST /to "body" auth="" type="text/plain" mine="m"`},
		"/here":      {"GET", `GET auth="own"`},
	} {
		intent := hostabi.HTTPIntent{
			Method: c.method, URL: begin.URL + path,
			Headers: map[string]string{"Authorization": "own", "Content-Type": "text/plain", "X-Mine": "m"},
		}
		if c.method == "POST" {
			intent.Body = "body"
		}
		if r := doHTTP(t, grantURLs(begin.URL+"/*", end.URL+"/*"), intent); r.HTTP == nil || r.HTTP.Body != c.want {
			t.Errorf("%s: got %s, want %s", path, describe(r), c.want)
		}
	}
}

// A DELETE that is redirected to a login page would get status 200, and look successful.
func TestHTTP_ReturnsRedirectsOfWrites(t *testing.T) {
	page, requests := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther} {
		s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, page.URL+"/login", status) })
		for _, method := range []string{"DELETE", "POST", "PUT", "PATCH"} {
			identity := grantURLs(s.URL+"/*", page.URL+"/*")
			for i := range identity.Grants.HTTP {
				identity.Grants.HTTP[i].Methods = []string{"GET", method}
			}
			r := doHTTP(t, identity, hostabi.HTTPIntent{Method: method, URL: s.URL + "/bucket"})
			if r.HTTP == nil || r.HTTP.Status != status {
				t.Errorf("%s with status %d: got %s", method, status, describe(r))
			}
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the page was requested %d times", n)
	}
}

func TestHTTP_RejectsOtherRedirects(t *testing.T) {
	end, ended := serve(t, func(http.ResponseWriter, *http.Request) {})
	to := map[string]string{
		"/other":    end.URL + "/secret/path?token=hunter2",
		"/method":   end.URL + "/posts",
		"/for-ever": "/for-ever",
		"/metadata": "http://169.254.169.254/latest",
		"/user":     strings.Replace(end.URL, "http://", "http://me:hunter2@", 1) + "/allowed/",
		"/file":     "file:///etc/passwd",
		"/encoded":  "/allowed/%2e%2e/x",
		"/control":  "/allowed/%00hunter2",
		"/broken":   "http://[hunter2",
	}
	begin, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", to[r.URL.Path])
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	identity := grantURLs(begin.URL+"/*", "http://169.254.169.254/*", end.URL+"/posts", end.URL+"/allowed/*")
	identity.Grants.HTTP[1].Addresses = append(identity.Grants.HTTP[1].Addresses, netip.MustParsePrefix("169.254.0.0/16"))
	identity.Grants.HTTP[2].Methods = []string{"GET"}
	for path, c := range map[string]struct {
		reason      hostabi.ErrorReason
		wantMessage string
	}{
		"/other":    {hostabi.ErrorNotGranted, strings.TrimPrefix(end.URL, "http://") + "/secret/path,"},
		"/method":   {hostabi.ErrorNotGranted, "POST " + strings.TrimPrefix(end.URL, "http://") + "/posts"},
		"/for-ever": {hostabi.ErrorUnavailable, "more than 5 redirects"},
		"/metadata": {hostabi.ErrorNotGranted, "never reached"},
		"/user":     {hostabi.ErrorNotGranted, "invalid URL"},
		"/file":     {hostabi.ErrorNotGranted, "invalid URL"},
		"/encoded":  {hostabi.ErrorNotGranted, "invalid URL"},
		"/control":  {hostabi.ErrorNotGranted, "invalid URL"},
		"/broken":   {hostabi.ErrorNotGranted, "invalid URL"},
	} {
		r := doHTTP(t, identity, hostabi.HTTPIntent{Method: "POST", URL: begin.URL + path})
		wantError(t, r, c.reason, c.wantMessage)
		if strings.Contains(r.Error.Message, "hunter2") {
			t.Errorf("%s: the server is quoted: %s", path, r.Error.Message)
		}
	}
	if n := ended.Load(); n != 0 {
		t.Errorf("the other server received %d requests", n)
	}
}

func TestHTTP_ReachesPrivateAddressesIfGranted(t *testing.T) {
	s, requests := serve(t, func(http.ResponseWriter, *http.Request) {})
	identity := grantURLs(s.URL + "/*")
	identity.Grants.HTTP[0].Addresses = nil
	wantError(t, doHTTP(t, identity, get(s.URL)), hostabi.ErrorNotGranted, "127.0.0.1 is private", "addresses of the grant")
	identity.Grants.HTTP[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	wantError(t, doHTTP(t, identity, get(s.URL)), hostabi.ErrorNotGranted, "127.0.0.1")
	if n := requests.Load(); n != 0 {
		t.Fatalf("the server received %d requests", n)
	}
	for _, never := range []string{"http://169.254.169.254", "http://[fe80::1]", "http://[::ffff:169.254.169.254]", "http://100.100.100.200", "http://0.0.0.0"} {
		identity := grantURLs(never)
		identity.Grants.HTTP[0].Addresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		wantError(t, doHTTP(t, identity, get(never)), hostabi.ErrorNotGranted, "never reached")
	}
}

func TestHTTP_ClusterNetworksArePrivate(t *testing.T) {
	e := intents.New(intents.Options{ClusterNetworks: func(context.Context) ([]netip.Prefix, error) {
		return []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, nil
	}})
	identity, intent := grantURLs("http://198.51.100.7"), get("http://198.51.100.7")
	wantError(t, e.Do(t.Context(), identity, hostabi.Intent{ID: "a", HTTP: &intent}), hostabi.ErrorNotGranted, "198.51.100.7 is private")
}

func TestHTTP_ChecksTheAddressOfEachRequest(t *testing.T) {
	s, requests := serve(t, func(http.ResponseWriter, *http.Request) {})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var asking atomic.Int64
	e := intents.New(intents.Options{Resolver: resolver(t, func() netip.Addr {
		if asking.Add(1) == 1 {
			return netip.MustParseAddr("127.0.0.1") // granted below
		}
		return netip.MustParseAddr("127.0.0.2")
	})}) // the same port on another loopback address would respond as well
	identity := grantURLs("http://api.example.com:" + port + "/*")
	identity.Grants.HTTP[0].Addresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	intent := get("http://api.example.com:" + port)
	if r := e.Do(t.Context(), identity, hostabi.Intent{ID: "a", HTTP: &intent}); r.HTTP == nil {
		t.Fatal(describe(r))
	}
	r := e.Do(t.Context(), identity, hostabi.Intent{ID: "a", HTTP: &intent})
	wantError(t, r, hostabi.ErrorUnavailable, "no address that may be reached")
	if strings.Contains(r.Error.Message, "127.0.0") {
		t.Errorf("the message contains the address: %s", r.Error.Message)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("the server received %d requests", n)
	}
}

// resolver returns a resolver whose server resolves every name to address.
func resolver(t *testing.T, address func() netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if response, err := resolve(buffer[:n], address); err == nil {
				_, _ = conn.WriteTo(response, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func resolve(query []byte, address func() netip.Addr) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	m.Response, m.Additionals = true, nil
	for _, q := range m.Questions {
		if q.Type != dnsmessage.TypeA {
			continue
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: address().As4()},
		})
	}
	return m.Pack()
}
