package intents

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

const (
	// httpTimeout bounds an intent, including reads of Secrets, redirects and the body.
	httpTimeout = 30 * time.Second

	// maxRedirects is the maximum number of redirects.
	maxRedirects = 5

	// maxRequestBodyBytes is the maximum size of a request body in bytes; a verdict can't contain more.
	maxRequestBodyBytes = hostabi.MaxVerdictBytes
)

// remedy is the advice in errors about addresses that are not public.
const remedy = "to reach that server, add its address to addresses of the grant"

// methodOverrideHeaders are headers that make many servers treat a request as one with another
// method, although grants and Monitor mode are by method.
var methodOverrideHeaders = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override"}

// An httpExchange is one HTTP intent in progress.
type httpExchange struct {
	*Executor
	identity Identity
	redactor redactor
}

// An httpRequest is one request of an exchange, without credentials.
type httpRequest struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

func (e *Executor) http(ctx context.Context, identity Identity, intent hostabi.HTTPIntent) (hostabi.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	x := &httpExchange{Executor: e, identity: identity}
	result, err := x.run(ctx, intent)
	if err != nil {
		return hostabi.Result{}, x.redactor.redactError(err)
	}
	return result, nil
}

// run sends a request and follows redirects. Each request must be granted, and gets the
// credentials of its own grant.
func (x *httpExchange) run(ctx context.Context, intent hostabi.HTTPIntent) (hostabi.Result, error) {
	s, err := parseRequest(intent)
	if err != nil {
		return hostabi.Result{}, err
	}
	for range maxRedirects + 1 {
		grant, ok := x.findGrant(s)
		if !ok {
			return hostabi.Result{}, errorf(hostabi.ErrorNotGranted, "no entry of grants.http covers %s %s", s.method, withoutQuery(s.url))
		}
		response, err := x.send(ctx, grant, s)
		if err != nil {
			return hostabi.Result{}, err
		}
		next, err := redirectTarget(s, response)
		if next == nil && err == nil {
			return x.read(ctx, s, response)
		}
		_ = response.Body.Close() // not read
		if err != nil {
			return hostabi.Result{}, err
		}
		if _, ok := x.findGrant(next); !ok {
			return hostabi.Result{}, errorf(hostabi.ErrorNotGranted, "%s redirects to %s %s%s, which no entry of grants.http covers",
				origin(s.url), next.method, next.url.Host, next.url.Path)
		}
		s = next
	}
	return hostabi.Result{}, errorf(hostabi.ErrorUnavailable, "more than %d redirects, the last one by %s", maxRedirects, origin(s.url))
}

// parseRequest returns the first request of an intent.
func parseRequest(intent hostabi.HTTPIntent) (*httpRequest, error) {
	u, err := parseURL(intent.URL)
	if err != nil {
		return nil, errorf(hostabi.ErrorInvalid, "invalid URL: %s", err)
	}
	if len(intent.Body) > maxRequestBodyBytes {
		return nil, errorf(hostabi.ErrorInvalid, "body has %d bytes: the maximum is %d", len(intent.Body), maxRequestBodyBytes)
	}
	s := &httpRequest{method: intent.Method, url: u, header: http.Header{}, body: []byte(intent.Body)}
	for name, value := range intent.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, errorf(hostabi.ErrorInvalid, "invalid header %q", name)
		}
		if slices.Contains(methodOverrideHeaders, http.CanonicalHeaderKey(name)) {
			return nil, errorf(hostabi.ErrorNotGranted, "header %s may override the granted method: remove it, and write method", name)
		}
		s.header.Set(name, value)
	}
	if encoding := s.header.Get("Accept-Encoding"); encoding != "" && encoding != "identity" {
		return nil, errorf(hostabi.ErrorInvalid, "header Accept-Encoding must be identity, since bodies are not decoded: remove it")
	}
	if s.header.Get("User-Agent") == "" {
		s.header.Set("User-Agent", "gleaner")
	}
	return s, nil
}

// findGrant returns the first grant that covers a request. Only its credentials are used.
func (x *httpExchange) findGrant(s *httpRequest) (policies.HTTPRule, bool) {
	for _, grant := range x.identity.Grants.HTTP {
		if !slices.Contains(grant.Methods, s.method) {
			continue
		}
		if p, err := parsePattern(grant.URL); err == nil && p.covers(s.url) {
			return grant, true
		}
	}
	return policies.HTTPRule{}, false
}

// send sends one request.
func (x *httpExchange) send(ctx context.Context, grant policies.HTTPRule, s *httpRequest) (*http.Response, error) {
	key := retryAfterKey{x.identity.Name, origin(s.url)}
	if err := x.retryAfter.check(key); err != nil {
		return nil, err
	}
	u := *s.url
	request, err := http.NewRequestWithContext(ctx, s.method, "", bytes.NewReader(s.body))
	if err != nil {
		return nil, errorf(hostabi.ErrorInvalid, "invalid HTTP method %q", s.method)
	}
	request.URL, request.Host, request.Header = &u, u.Host, s.header.Clone()
	if err := x.authorize(ctx, grant, request, s.body); err != nil {
		return nil, err
	}
	transport, err := x.transport(ctx, grant)
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		if unreached := (*egress.UnreachableHostError)(nil); errors.As(err, &unreached) {
			x.options.Log.Info("HTTP request was not sent", "for", x.identity.Name, "host", unreached.Host, "cause", unreached.Cause.Error())
		}
		return nil, transportError(ctx, s, err)
	}
	x.retryAfter.record(key, response)
	return response, nil
}

// transport returns the transport of a request whose credentials were added. Requests share
// connections only if they have the same grant and the same credentials.
func (x *httpExchange) transport(ctx context.Context, grant policies.HTTPRule) (http.RoundTripper, error) {
	config := egress.Config{
		Allow: grant.Addresses, IsInternal: x.options.ClusterNetworks, Remedy: remedy, Resolver: x.options.Resolver,
		AllowHTTP:         strings.HasPrefix(grant.URL, "http://"),
		Proxy:             egress.NoProxy, // a proxy resolves names itself, so the addresses could not be checked
		DisableKeepAlives: !x.options.ReuseConnections,
		IdleTimeout:       idleTimeout,
		MaxIdlePerHost:    maxIdleConnections,
	}
	if grant.CA != nil {
		ca, err := x.secrets.value(ctx, x.identity, *grant.CA)
		if err != nil {
			return nil, err
		}
		config.CAs = []byte(ca)
	}
	transport, err := x.connections.get(x.connectionKey(grant, config.CAs), x.options.Now(), func() (http.RoundTripper, error) {
		return egress.NewTransport(config)
	})
	if err != nil && grant.CA != nil {
		return nil, errorf(hostabi.ErrorUnavailable, "key %s of %s, referenced by ca of a grant: %s", grant.CA.Key, grant.CA.NamespacedName, err)
	}
	return transport, err
}

// parseQuery parses a query to be signed: the signed query must equal the one that is sent.
func parseQuery(query string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errorf(hostabi.ErrorInvalid, "URL query can't be signed: write name=value pairs separated by &, and escape ; and %%")
	}
	return values, nil
}
