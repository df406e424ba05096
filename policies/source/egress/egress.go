// Package egress makes the HTTP clients by which modules are fetched, and by
// which they have requests sent. Where such a client goes may have been written
// by anybody who may create a resource in some namespace, so each connection is
// judged by the address that it is about to be made to, after names were
// resolved: what a name resolved to earlier, or resolves to later, is of no
// importance.
//
// It knows neither registries nor modules nor grants, and bounds no body: who
// reads one does.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// What a server may take for each step. The whole of it is bounded by the
// request's context.
const (
	dialTimeout   = 10 * time.Second
	headerTimeout = 30 * time.Second
	idleTimeout   = 30 * time.Second
	mostHeader    = 64 << 10 // bytes of a response's header
)

// DefaultRedirects is how often a request may be sent elsewhere.
const DefaultRedirects = 5

// Config says where a client may go. The zero value reaches public addresses, by
// HTTPS.
type Config struct {
	// Private lets it reach loopback and private addresses as well. Those at which
	// clouds serve credentials to machines stay out of reach.
	Private bool
	// PlainLoopback allows HTTP without TLS, to loopback addresses only. It means
	// nothing without Private.
	PlainLoopback bool
	// Plain allows HTTP without TLS to whatever can be reached, and never by a proxy.
	Plain bool
	// Allow are networks that can be reached although they are private.
	Allow []netip.Prefix
	// Refuse are networks that can't be reached although they look public, such as
	// the cluster's own if those are not of a private range.
	Refuse []netip.Prefix
	// Inside returns networks that count as private although they look public: the
	// cluster's own. It is asked about addresses that look public only; where it can't
	// tell, nothing is reached. nil: there are none.
	Inside func(context.Context) ([]netip.Prefix, error)
	// Reveal has errors say what names resolve to. It is for who could resolve them
	// just as well; see Unreached for the others.
	Reveal bool
	// Remedy says, at the end of a refusal, what to do about a private address.
	// Default: that it is for the operator to allow it.
	Remedy string
	// CAs are certificates in PEM, believed beside those of the system.
	CAs []byte
	// Redirects is how often a request may be sent elsewhere. 0: DefaultRedirects.
	Redirects int
	// Proxy chooses the proxy of a request. Default: http.ProxyFromEnvironment. A
	// proxy resolves names itself, so behind one its own rules count, too.
	Proxy func(*http.Request) (*url.URL, error)
	// Resolver resolves names. Default: the system's.
	Resolver *net.Resolver
	// Once makes a connection for each request. What a server sends on one that
	// nobody waits on is logged by net/http: it may be what was sent to it.
	Once bool
}

// Direct is for Config.Proxy: there is none.
func Direct(*http.Request) (*url.URL, error) { return nil, nil }

// Refusal is a request that was not made, since it led where it must not. Who
// wrote down the place is to blame, or the server that sent it on. The message names
// an address only if the URL does: see Unreached.
type Refusal struct {
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

func refuse(format string, args ...any) *Refusal {
	return &Refusal{Message: fmt.Sprintf(format, args...)}
}

// New returns a client. The error is about the certificates.
func New(c Config) (*http.Client, error) {
	t, err := build(c)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t, CheckRedirect: t.checkRedirect}, nil
}

// NewTransport returns what sends single requests, for those who judge on their
// own where a server sends them on to. The error is about the certificates.
func NewTransport(c Config) (http.RoundTripper, error) { return build(c) }

func build(c Config) (*transport, error) {
	roots, err := pool(c.CAs)
	if err != nil {
		return nil, err
	}
	if c.Redirects == 0 {
		c.Redirects = DefaultRedirects
	}
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	r := rules{private: c.Private, allow: c.Allow, refuse: c.Refuse, inside: c.Inside, remedy: c.Remedy}
	t := &transport{
		rules:     r,
		proxy:     c.Proxy,
		redirects: c.Redirects,
		reveals:   c.Reveal,
		direct:    newTransport(roots, dialer(c.Resolver, r.check)),
		proxied:   newTransport(roots, dialer(c.Resolver, nil)), // it dials nothing but proxies
	}
	t.proxied.Proxy = func(req *http.Request) (*url.URL, error) {
		proxy, err := c.Proxy(req)
		if err == nil && proxy == nil {
			err = errors.New("choose proxy: it had one, and has none any more")
		}
		return proxy, err
	}
	switch {
	case c.Plain:
		t.plain = t.direct
	case c.Private && c.PlainLoopback:
		t.plain = newTransport(roots, dialer(c.Resolver, onlyLoopback))
	}
	for _, way := range []*http.Transport{t.direct, t.proxied, t.plain} {
		if way != nil {
			way.DisableKeepAlives = c.Once
		}
	}
	return t, nil
}

// pool is nil, which means the system's, unless there is something to add.
func pool(pem []byte) (*x509.CertPool, error) {
	if len(pem) == 0 {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("read certificates: there is none in PEM")
	}
	return roots, nil
}

func newTransport(roots *x509.CertPool, d *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            d.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: mostHeader,
		MaxIdleConns:           20,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // or a small body could become a large one unseen
		ForceAttemptHTTP2:      true,
	}
}

// dialer checks the very address that a connection is about to be made to. Each
// of a name's addresses is checked when its turn comes.
func dialer(resolver *net.Resolver, check func(context.Context, netip.Addr) error) *net.Dialer {
	d := &net.Dialer{Timeout: dialTimeout, Resolver: resolver}
	if check == nil {
		return d
	}
	d.ControlContext = func(ctx context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("check address %s: %w", address, err)
		}
		return check(ctx, at.Addr())
	}
	return d
}

// transport sends each request by the way that its scheme and the proxy settings
// ask for. Connections are pooled, so there is one for each set of rules.
type transport struct {
	rules     rules
	proxy     func(*http.Request) (*url.URL, error)
	redirects int
	reveals   bool

	direct, proxied *http.Transport
	plain           *http.Transport // nil: no HTTP without TLS
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	way, err := t.way(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper has to; nothing was read
		}
		return nil, err
	}
	response, err := way.RoundTrip(r)
	if t.reveals || way == t.proxied { // which resolves no name of a URL
		return response, err
	}
	remedy := t.rules.advice()
	if way == t.plain && way != t.direct {
		remedy = "without https:// only loopback addresses are reached"
	}
	return response, hide(r.URL.Hostname(), remedy, err)
}

func (t *transport) way(r *http.Request) (*http.Transport, error) {
	if r.URL.User != nil {
		return nil, refuse("the URL of %s has a user name or password in it, which would show up in logs: remove it", r.URL.Host)
	}
	if r.URL.Scheme == "http" && t.plain != nil {
		return t.plain, nil
	}
	if r.URL.Scheme != "https" {
		return nil, refuse("%s://%s is not reached by HTTPS: use an address that begins with https://", r.URL.Scheme, r.URL.Host)
	}
	proxy, err := t.proxy(r)
	if err != nil {
		return nil, fmt.Errorf("choose proxy for %s: %w", r.URL.Host, err)
	}
	if proxy == nil {
		return t.direct, nil
	}
	if address, err := netip.ParseAddr(r.URL.Hostname()); err == nil {
		if err := t.rules.check(r.Context(), address); err != nil {
			return nil, err
		}
	}
	return t.proxied, nil
}

// CloseIdleConnections is what http.Client's method of this name calls.
func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
	if t.plain != nil {
		t.plain.CloseIdleConnections()
	}
}

// checkRedirect is asked before a request goes on to where a server has sent it;
// that it goes by HTTPS, RoundTrip sees to as for any other.
func (t *transport) checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > t.redirects {
		return refuse("%s was sent on more than %d times: use the address where it ends", via[0].URL.Host, t.redirects)
	}
	last := via[len(via)-1]
	if last.URL.Scheme == "https" && r.URL.Scheme != "https" {
		return refuse("%s sends on to %s://%s, which is not reached by HTTPS", last.URL.Host, r.URL.Scheme, r.URL.Host)
	}
	if r.URL.Host != via[0].URL.Host {
		r.Header.Del("Authorization") // net/http would keep it for another port or a subdomain
	}
	return nil
}
