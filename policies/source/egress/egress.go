// Package egress provides the HTTP clients that fetch modules and send their
// requests. URLs may come from anyone who may create a resource in a namespace, so
// each connection is checked by its actual address, after name resolution: what a
// name resolves to at other times does not matter.
//
// It knows nothing of registries, modules and grants. It does not limit bodies: the
// reader does.
package egress

import (
	"cmp"
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

// Timeouts and limits of single steps. The request's context limits the whole
// request.
const (
	dialTimeout    = 10 * time.Second
	headerTimeout  = 30 * time.Second
	idleTimeout    = 30 * time.Second
	maxHeaderBytes = 64 << 10 // bytes of a response's header
)

// DefaultRedirects is the default maximum number of redirects.
const DefaultRedirects = 5

// Config defines which addresses a client may reach. The zero value allows public
// addresses, over HTTPS.
type Config struct {
	// AllowPrivate allows loopback and private addresses. The metadata addresses of
	// cloud providers stay unreachable.
	AllowPrivate bool
	// AllowLoopbackHTTP allows HTTP without TLS to loopback addresses. It has no effect
	// without Private.
	AllowLoopbackHTTP bool
	// AllowHTTP allows HTTP without TLS to all reachable addresses, but not through a
	// proxy.
	AllowHTTP bool
	// Allow lists private networks that can be reached.
	Allow []netip.Prefix
	// Deny lists public networks that cannot be reached, such as those of the
	// cluster if they are not in a private range.
	Deny []netip.Prefix
	// IsInternal returns public networks that are treated as private: those of the
	// cluster. It is called for public addresses only; if it fails, the address is
	// not reached. Nil: there are none.
	IsInternal func(context.Context) ([]netip.Prefix, error)
	// RevealAddresses includes resolved addresses in errors. It is for users who could
	// resolve the names as well; see Unreached for others.
	RevealAddresses bool
	// Remedy says at the end of a refusal what to do about a private address.
	// Default: the operator has to allow it.
	Remedy string
	// CAs are PEM certificates that are trusted in addition to those of the system.
	CAs []byte
	// Redirects is the maximum number of redirects. 0: DefaultRedirects.
	Redirects int
	// Proxy selects the proxy of a request. Default: http.ProxyFromEnvironment. A
	// proxy resolves names itself, so its own rules apply as well.
	Proxy func(*http.Request) (*url.URL, error)
	// Resolver resolves names. Default: the system's.
	Resolver *net.Resolver
	// DisableKeepAlives uses a new connection for each request. net/http logs what a server
	// sends on an idle connection: it may contain what was sent to the server.
	DisableKeepAlives bool
	// IdleTimeout is how long an idle connection is kept. 0: 30s.
	IdleTimeout time.Duration
	// MaxIdlePerHost is the maximum number of idle connections to a host. 0: 2.
	MaxIdlePerHost int
}

// NoProxy is a Config.Proxy without a proxy.
func NoProxy(*http.Request) (*url.URL, error) { return nil, nil }

// DeniedError is a request that was not sent, because its address must not be reached.
// The author of the URL caused it, or the server that redirected the request. The
// message contains an address only if the URL does: see Unreached.
type DeniedError struct {
	Message string
}

// Error implements error.
func (r *DeniedError) Error() string { return r.Message }

func denied(format string, args ...any) *DeniedError {
	return &DeniedError{Message: fmt.Sprintf(format, args...)}
}

// New returns a client. The error reports invalid certificates.
func New(c Config) (*http.Client, error) {
	t, err := build(c)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t, CheckRedirect: t.checkRedirect}, nil
}

// NewTransport returns a RoundTripper for single requests, for callers that handle
// redirects themselves. The error reports invalid certificates.
func NewTransport(c Config) (http.RoundTripper, error) { return build(c) }

func build(c Config) (*transport, error) {
	roots, err := certPool(c.CAs)
	if err != nil {
		return nil, err
	}
	if c.Redirects == 0 {
		c.Redirects = DefaultRedirects
	}
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	r := rules{private: c.AllowPrivate, allow: c.Allow, deny: c.Deny, isInternal: c.IsInternal, remedy: c.Remedy}
	t := &transport{
		rules:           r,
		proxy:           c.Proxy,
		redirects:       c.Redirects,
		revealAddresses: c.RevealAddresses,
		direct:          newTransport(roots, dialer(c.Resolver, r.check)),
		proxied:         newTransport(roots, dialer(c.Resolver, nil)), // it only dials proxies
	}
	t.proxied.Proxy = func(req *http.Request) (*url.URL, error) {
		proxy, err := c.Proxy(req)
		if err == nil && proxy == nil {
			err = errors.New("choose proxy: the proxy changed during the request")
		}
		return proxy, err
	}
	switch {
	case c.AllowHTTP:
		t.plain = t.direct
	case c.AllowPrivate && c.AllowLoopbackHTTP:
		t.plain = newTransport(roots, dialer(c.Resolver, onlyLoopback))
	}
	for _, way := range []*http.Transport{t.direct, t.proxied, t.plain} {
		if way != nil {
			way.DisableKeepAlives, way.MaxIdleConnsPerHost = c.DisableKeepAlives, c.MaxIdlePerHost
			way.IdleConnTimeout = cmp.Or(c.IdleTimeout, idleTimeout)
		}
	}
	return t, nil
}

// certPool returns nil, which means the system's pool, unless there are certificates to
// add.
func certPool(pem []byte) (*x509.CertPool, error) {
	if len(pem) == 0 {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read system certificates: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("parse certificates: no PEM certificate found")
	}
	return roots, nil
}

func newTransport(roots *x509.CertPool, d *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            d.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           20,
		DisableCompression:     true, // otherwise a small body could become a large one unnoticed
		ForceAttemptHTTP2:      true,
	}
}

// dialer checks the address of each connection. Each of a name's addresses is
// checked before it is dialed.
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

// transport sends each request by the transport that its scheme and the proxy
// settings require. Connections are pooled, so there is one transport for each set
// of rules.
type transport struct {
	rules           rules
	proxy           func(*http.Request) (*url.URL, error)
	redirects       int
	revealAddresses bool

	direct, proxied *http.Transport
	plain           *http.Transport // nil: no HTTP without TLS
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	way, err := t.transportFor(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // required of a RoundTripper; nothing was read
		}
		return nil, err
	}
	response, err := way.RoundTrip(r)
	if t.revealAddresses || way == t.proxied { // which does not resolve the URL's host
		return response, err
	}
	remedy := t.rules.advice()
	if way == t.plain && way != t.direct {
		remedy = "without https:// only loopback addresses can be reached"
	}
	return response, redact(r.URL.Hostname(), remedy, err)
}

func (t *transport) transportFor(r *http.Request) (*http.Transport, error) {
	if r.URL.User != nil {
		return nil, denied("the URL of %s contains a user name or password, which would appear in logs: remove it", r.URL.Host)
	}
	if r.URL.Scheme == "http" && t.plain != nil {
		return t.plain, nil
	}
	if r.URL.Scheme != "https" {
		return nil, denied("%s://%s does not use HTTPS: use a URL that begins with https://", r.URL.Scheme, r.URL.Host)
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

// CloseIdleConnections is called by the method of this name of http.Client.
func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
	if t.plain != nil {
		t.plain.CloseIdleConnections()
	}
}

// checkRedirect checks a redirect. RoundTrip checks that it uses HTTPS, as for any
// other request.
func (t *transport) checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > t.redirects {
		return denied("%s: more than %d redirects: use the final URL", via[0].URL.Host, t.redirects)
	}
	last := via[len(via)-1]
	if last.URL.Scheme == "https" && r.URL.Scheme != "https" {
		return denied("%s redirects to %s://%s, which does not use HTTPS", last.URL.Host, r.URL.Scheme, r.URL.Host)
	}
	if r.URL.Host != via[0].URL.Host {
		r.Header.Del("Authorization") // net/http would keep it for another port or a subdomain
	}
	return nil
}
