package egress_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

// server is one by TLS that counts what it is asked.
func server(t *testing.T, h http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s, &asked
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func certificate(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func client(t *testing.T, c egress.Config) *http.Client {
	t.Helper()
	made, err := egress.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.CloseIdleConnections)
	return made
}

func get(t *testing.T, c *http.Client, at string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// refused makes sure that a request was not made because of the rules.
func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	refusal := new(egress.DeniedError)
	if !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a refusal", err)
	}
	for _, w := range words {
		if !strings.Contains(refusal.Message, w) {
			t.Errorf("no %q in %q", w, refusal.Message)
		}
	}
}

func TestClient_TrustsConfiguredCAs(t *testing.T) {
	s, _ := server(t, hello)
	body, err := get(t, client(t, egress.Config{AllowPrivate: true, CAs: certificate(s)}), s.URL)
	if err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
	if _, err := get(t, client(t, egress.Config{AllowPrivate: true}), s.URL); err == nil {
		t.Error("a certificate that nobody vouches for is believed")
	}
	if _, err := egress.New(egress.Config{CAs: []byte("none")}); err == nil {
		t.Error("something that is no certificate is believed to be one")
	}
}

func TestClient_ReachesNoPrivateAddressUnlessItMay(t *testing.T) {
	s, asked := server(t, hello)
	_, err := get(t, client(t, egress.Config{CAs: certificate(s)}), s.URL)
	refused(t, err, "127.0.0.1", "is private")
	if n := asked.Load(); n != 0 {
		t.Errorf("it was asked %d times", n)
	}
	allowed := egress.Config{CAs: certificate(s), Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	if _, err := get(t, client(t, allowed), s.URL); err != nil {
		t.Error(err)
	}
}

func TestClient_JudgesTheAddressThatANameResolvesTo(t *testing.T) {
	s, asked := server(t, hello)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		private bool
		address netip.Addr
		says    string
	}{
		"a name for loopback is private":        {false, netip.MustParseAddr("127.0.0.1"), "is private"},
		"a name for metadata is never reached":  {true, netip.MustParseAddr("169.254.169.254"), "metadata"},
		"a name for a private address as well":  {false, netip.MustParseAddr("10.9.8.7"), "is private"},
		"a name for a public one that is Azure": {true, netip.MustParseAddr("168.63.129.16"), "metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			config := egress.Config{RevealAddresses: true, AllowPrivate: c.private, CAs: certificate(s), Resolver: resolver(t, func() netip.Addr { return c.address })}
			_, err := get(t, client(t, config), "https://modules.example.com:"+port)
			refused(t, err, c.address.String(), c.says)
		})
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestClient_ChecksDialedAddress(t *testing.T) {
	s, asked := server(t, hello)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var asking atomic.Int64
	rebinding := resolver(t, func() netip.Addr {
		if asking.Add(1) == 1 {
			return netip.MustParseAddr("127.0.0.2") // allowed below
		}
		return netip.MustParseAddr("127.0.0.1")
	})
	c := client(t, egress.Config{RevealAddresses: true, CAs: certificate(s), Resolver: rebinding, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
	// Nothing listens at the first address, so that attempt ends in another error.
	if _, err := get(t, c, "https://modules.example.com:"+port); err == nil {
		t.Fatal("somebody answers at 127.0.0.2")
	}
	_, err = get(t, c, "https://modules.example.com:"+port)
	refused(t, err, "127.0.0.1")
	if n := asked.Load(); n != 0 {
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
		if q.Type != dnsmessage.TypeA || !address().IsValid() {
			continue
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: address().As4()},
		})
	}
	return m.Pack()
}

func TestClient_GoesByHTTPSOnly(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(hello))
	t.Cleanup(plain.Close)
	_, err := get(t, client(t, egress.Config{AllowPrivate: true}), plain.URL)
	refused(t, err, "https://")
	_, err = get(t, client(t, egress.Config{AllowLoopbackHTTP: true}), plain.URL)
	refused(t, err, "https://")
	if body, err := get(t, client(t, egress.Config{AllowPrivate: true, AllowLoopbackHTTP: true}), plain.URL); err != nil || body != "hello" {
		t.Errorf("plain HTTP on loopback: %q, %v", body, err)
	}
	_, err = get(t, client(t, egress.Config{AllowPrivate: true, AllowLoopbackHTTP: true}), "http://10.0.0.1/")
	refused(t, err, "10.0.0.1", "loopback addresses only")
	_, err = get(t, client(t, egress.Config{AllowPrivate: true}), "https://me:secret@127.0.0.1/")
	refused(t, err, "user name or password")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in the message: %v", err)
	}
}

func TestClient_FollowsFewRedirectsAndNoneToHTTP(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(hello))
	t.Cleanup(plain.Close)
	end, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "authorization: "+r.Header.Get("Authorization"))
	})
	to := map[string]string{
		"/once":     end.URL,
		"/plain":    plain.URL,
		"/for-ever": "/for-ever",
		"/metadata": "https://169.254.169.254/latest",
		"/user":     strings.Replace(end.URL, "https://", "https://me:secret@", 1),
		"/file":     "file:///etc/passwd",
	}
	begin, _ := server(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to[r.URL.Path], http.StatusFound) })
	c := client(t, egress.Config{AllowPrivate: true, AllowLoopbackHTTP: true, CAs: certificate(begin)}) // both have the same
	for path, says := range map[string]string{
		"/plain": "does not use HTTPS", "/for-ever": "more than 5 redirects", "/metadata": "metadata",
		"/user": "user name or password", "/file": "does not use HTTPS",
	} {
		_, err := get(t, c, begin.URL+path)
		refused(t, err, says)
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, begin.URL+"/once", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer secret")
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "authorization: " {
		t.Errorf("another server on this machine got %q, %v", body, err)
	}
}

func TestClient_BehindAProxyReachesNoPrivateAddressEither(t *testing.T) {
	var proxied atomic.Value
	proxied.Store("")
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied.Store(r.Host)
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, egress.Config{Proxy: http.ProxyURL(at)})
	_, err = get(t, c, "https://10.0.0.1/")
	refused(t, err, "10.0.0.1")
	if host := proxied.Load(); host != "" {
		t.Fatalf("the proxy was asked for %s", host)
	}
	// The proxy is at a private address, and was chosen by the operator.
	if _, err := get(t, c, "https://modules.example.com/"); err == nil {
		t.Error("a proxy that refuses gives something")
	}
	if host := proxied.Load(); host != "modules.example.com:443" {
		t.Errorf("the proxy was asked for %q", host)
	}
}

func TestTransport_GoesByPlainHTTPWhereItMay(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(hello))
	t.Cleanup(plain.Close)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	if body, err := get(t, client(t, egress.Config{AllowHTTP: true, Allow: loopback}), plain.URL); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
	_, err := get(t, client(t, egress.Config{AllowHTTP: true, Remedy: "write it down"}), plain.URL)
	refused(t, err, "127.0.0.1 is private; write it down")
}

func TestTransport_FollowsNoRedirectOfItsOwn(t *testing.T) {
	s, asked := server(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/on", http.StatusFound) })
	transport, err := egress.NewTransport(egress.Config{AllowPrivate: true, CAs: certificate(s), DisableKeepAlives: true})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusFound || asked.Load() != 1 || !response.Close {
		t.Errorf("got %s after %d requests, and the connection is closed: %v", response.Status, asked.Load(), response.Close)
	}
}

func TestError_HidesResolvedAddress(t *testing.T) {
	closed, _ := server(t, hello)
	_, port, err := net.SplitHostPort(closed.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	texts := map[string][]string{}
	for name, address := range map[string]netip.Addr{
		"nobody listens":  netip.MustParseAddr("127.0.0.1"),
		"private":         netip.MustParseAddr("10.9.8.7"),
		"private as well": netip.MustParseAddr("192.168.1.1"),
		"metadata":        netip.MustParseAddr("169.254.169.254"),
		"no address":      {},
	} {
		c := client(t, egress.Config{Remedy: "do this", Resolver: resolver(t, func() netip.Addr { return address })})
		_, err := get(t, c, "https://internal.example.com:"+port)
		var unreached *egress.UnreachableHostError
		if !errors.As(err, &unreached) {
			t.Fatalf("%s: got %v", name, err)
		}
		if address.IsValid() && !strings.Contains(unreached.Cause.Error(), address.String()) {
			t.Errorf("%s: the operator is not told: %v", name, unreached.Cause)
		}
		if errors.As(err, new(*egress.DeniedError)) || errors.As(err, new(*net.DNSError)) {
			t.Errorf("%s: the cause can be had from the error", name)
		}
		texts[err.Error()] = append(texts[err.Error()], name)
	}
	if len(texts) != 1 {
		t.Errorf("names can be told apart: %v", texts)
	}
}

func TestRedactAddresses(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(10, 96, 0, 10), Port: 53}
	for want, err := range map[string]error{
		"dial: connect: connection refused":                           &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"read: i/o timeout":                                           &url.Error{Op: "Get", URL: "https://10.96.0.10/", Err: &net.OpError{Op: "read", Source: at, Addr: at, Err: os.ErrDeadlineExceeded}},
		"look up host: not found, or no name server could be reached": &net.DNSError{Name: "a", Server: "10.96.0.10:53", Err: "read udp 10.0.0.1:1->10.96.0.10:53: i/o timeout"},
		"proxyconnect: dial: connect: connection refused":             &net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "dial", Addr: at, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}},
		"address: missing port":                                       fmt.Errorf("ask: %w", &net.AddrError{Err: "missing port", Addr: "10.96.0.10"}),
		"something else":                                              errors.New("something else"),
	} {
		if got := egress.RedactAddresses(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
