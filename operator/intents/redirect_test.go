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

func TestHTTP_RedirectsAreFollowedWhereGranted(t *testing.T) {
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
			w.Header().Set("Location", "../there") // as a server may well write it
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
		if r := ask(t, granting(begin.URL+"/*", end.URL+"/*"), intent); r.HTTP == nil || r.HTTP.Body != c.want {
			t.Errorf("%s: got %s, want %s", path, show(r), c.want)
		}
	}
}

// A DELETE that ends in the page of a login would be answered 200, and taken for done.
func TestHTTP_ARedirectThatWouldMakeAGETOfSomethingElseIsTheAnswer(t *testing.T) {
	page, asked := serve(t, func(http.ResponseWriter, *http.Request) {})
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther} {
		s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, page.URL+"/login", status) })
		for _, method := range []string{"DELETE", "POST", "PUT", "PATCH"} {
			on := granting(s.URL+"/*", page.URL+"/*")
			for i := range on.Grants.HTTP {
				on.Grants.HTTP[i].Methods = []string{"GET", method}
			}
			r := ask(t, on, hostabi.HTTPIntent{Method: method, URL: s.URL + "/bucket"})
			if r.HTTP == nil || r.HTTP.Status != status {
				t.Errorf("%s that is answered %d: got %s", method, status, show(r))
			}
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the page was asked for %d times", n)
	}
}

func TestHTTP_RedirectsAreNotFollowedElsewhere(t *testing.T) {
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
	on := granting(begin.URL+"/*", "http://169.254.169.254/*", end.URL+"/posts", end.URL+"/allowed/*")
	on.Grants.HTTP[1].Addresses = append(on.Grants.HTTP[1].Addresses, netip.MustParsePrefix("169.254.0.0/16"))
	on.Grants.HTTP[2].Methods = []string{"GET"}
	for path, c := range map[string]struct {
		reason hostabi.ErrorReason
		says   string
	}{
		"/other":    {hostabi.ErrorNotGranted, strings.TrimPrefix(end.URL, "http://") + "/secret/path,"},
		"/method":   {hostabi.ErrorNotGranted, "POST " + strings.TrimPrefix(end.URL, "http://") + "/posts"},
		"/for-ever": {hostabi.ErrorUnavailable, "more than 5 times"},
		"/metadata": {hostabi.ErrorNotGranted, "never reached"},
		"/user":     {hostabi.ErrorNotGranted, "no URL"},
		"/file":     {hostabi.ErrorNotGranted, "no URL"},
		"/encoded":  {hostabi.ErrorNotGranted, "no URL"},
		"/control":  {hostabi.ErrorNotGranted, "no URL"},
		"/broken":   {hostabi.ErrorNotGranted, "no URL"},
	} {
		r := ask(t, on, hostabi.HTTPIntent{Method: "POST", URL: begin.URL + path})
		fails(t, r, c.reason, c.says)
		if strings.Contains(r.Error.Message, "hunter2") {
			t.Errorf("%s: the server is quoted: %s", path, r.Error.Message)
		}
	}
	if n := ended.Load(); n != 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

func TestHTTP_PrivateAddressesAreReachedWhereTheyAreGranted(t *testing.T) {
	s, asked := serve(t, func(http.ResponseWriter, *http.Request) {})
	on := granting(s.URL + "/*")
	on.Grants.HTTP[0].Addresses = nil
	fails(t, ask(t, on, get(s.URL)), hostabi.ErrorNotGranted, "127.0.0.1 is private", "addresses of the grant")
	on.Grants.HTTP[0].Addresses = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	fails(t, ask(t, on, get(s.URL)), hostabi.ErrorNotGranted, "127.0.0.1")
	if n := asked.Load(); n != 0 {
		t.Fatalf("the server was asked %d times", n)
	}
	for _, never := range []string{"http://169.254.169.254", "http://[fe80::1]", "http://[::ffff:169.254.169.254]", "http://100.100.100.200", "http://0.0.0.0"} {
		on := granting(never)
		on.Grants.HTTP[0].Addresses = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		fails(t, ask(t, on, get(never)), hostabi.ErrorNotGranted, "never reached")
	}
}

func TestHTTP_NetworksOfTheClusterArePrivate(t *testing.T) {
	e := intents.New(intents.Options{Inside: func(context.Context) ([]netip.Prefix, error) {
		return []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, nil
	}})
	on, intent := granting("http://198.51.100.7"), get("http://198.51.100.7")
	fails(t, e.Do(t.Context(), on, hostabi.Intent{ID: "a", HTTP: &intent}), hostabi.ErrorNotGranted, "198.51.100.7 is private")
}

func TestHTTP_IsNotFooledByANameThatResolvesAnewEachTime(t *testing.T) {
	s, asked := serve(t, func(http.ResponseWriter, *http.Request) {})
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
	})}) // the same port on another address of this machine would answer as well
	on := granting("http://api.example.com:" + port + "/*")
	on.Grants.HTTP[0].Addresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	intent := get("http://api.example.com:" + port)
	if r := e.Do(t.Context(), on, hostabi.Intent{ID: "a", HTTP: &intent}); r.HTTP == nil {
		t.Fatal(show(r))
	}
	r := e.Do(t.Context(), on, hostabi.Intent{ID: "a", HTTP: &intent})
	fails(t, r, hostabi.ErrorUnavailable, "no address that may be reached")
	if strings.Contains(r.Error.Message, "127.0.0") {
		t.Errorf("the module is told what the name stands for: %s", r.Error.Message)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

// resolver is one whose server on loopback gives every name the address.
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
			if answer, err := resolve(buffer[:n], address); err == nil {
				_, _ = conn.WriteTo(answer, from)
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
