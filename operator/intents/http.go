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
	// httpTimeout bounds an intent with all that it takes: Secrets, redirects, and
	// the body.
	httpTimeout = 30 * time.Second

	// mostRedirects is how often a request is sent elsewhere.
	mostRedirects = 5

	// mostSent bounds a request's body, in bytes. A verdict can't hold more.
	mostSent = hostabi.MaxVerdictBytes
)

// remedy is what a refusal says to do about an address that is not public.
const remedy = "write its address into addresses of the grant if that server is meant"

// overrides are headers by which many servers take a request for one of another method
// than it has: what is granted, and sent in Monitor, is by method.
var overrides = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override"}

// exchange is one HTTP intent on its way.
type exchange struct {
	*Executor
	on     Behalf
	hidden hidden
}

// sending is one request of an exchange, without credentials.
type sending struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

func (e *Executor) http(ctx context.Context, on Behalf, intent hostabi.HTTPIntent) (hostabi.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, httpTimeout)
	defer cancel()
	x := &exchange{Executor: e, on: on}
	result, err := x.run(ctx, intent)
	if err != nil {
		return hostabi.Result{}, x.hidden.problem(err)
	}
	return result, nil
}

// run sends a request to where it is answered. Each step on the way has to be
// granted, and gets its own credentials.
func (x *exchange) run(ctx context.Context, intent hostabi.HTTPIntent) (hostabi.Result, error) {
	s, err := begin(intent)
	if err != nil {
		return hostabi.Result{}, err
	}
	for range mostRedirects + 1 {
		grant, ok := x.granted(s)
		if !ok {
			return hostabi.Result{}, problemf(hostabi.ErrorNotGranted, "none of grants.http covers %s %s", s.method, place(s.url))
		}
		response, err := x.send(ctx, grant, s)
		if err != nil {
			return hostabi.Result{}, err
		}
		next, err := redirected(s, response)
		if next == nil && err == nil {
			return x.read(ctx, s, response)
		}
		_ = response.Body.Close() // nobody reads it
		if err != nil {
			return hostabi.Result{}, err
		}
		if _, ok := x.granted(next); !ok {
			return hostabi.Result{}, problemf(hostabi.ErrorNotGranted, "%s sends on to %s %s%s, which none of grants.http covers",
				origin(s.url), next.method, next.url.Host, next.url.Path)
		}
		s = next
	}
	return hostabi.Result{}, problemf(hostabi.ErrorUnavailable, "the request was sent on more than %d times, in the end by %s", mostRedirects, origin(s.url))
}

// begin reads what the module wants to send.
func begin(intent hostabi.HTTPIntent) (*sending, error) {
	u, err := parseURL(intent.URL)
	if err != nil {
		return nil, problemf(hostabi.ErrorInvalid, "the URL is not sent: %s", err)
	}
	if len(intent.Body) > mostSent {
		return nil, problemf(hostabi.ErrorInvalid, "the body has %d bytes: write at most %d", len(intent.Body), mostSent)
	}
	s := &sending{method: intent.Method, url: u, header: http.Header{}, body: []byte(intent.Body)}
	for name, value := range intent.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, problemf(hostabi.ErrorInvalid, "%q is no header that could be sent", name)
		}
		if slices.Contains(overrides, http.CanonicalHeaderKey(name)) {
			return nil, problemf(hostabi.ErrorNotGranted, "the header %s has servers take the request for one of another method than a grant allows: leave it out, and write method", name)
		}
		s.header.Set(name, value)
	}
	if encoding := s.header.Get("Accept-Encoding"); encoding != "" && encoding != "identity" {
		return nil, problemf(hostabi.ErrorInvalid, "the header Accept-Encoding is the host's, which reads bodies as they are: leave it out")
	}
	if s.header.Get("User-Agent") == "" {
		s.header.Set("User-Agent", "gleaner")
	}
	return s, nil
}

// granted finds the first grant that covers a request: its credentials count, and no
// others.
func (x *exchange) granted(s *sending) (policies.HTTP, bool) {
	for _, grant := range x.on.Grants.HTTP {
		if !slices.Contains(grant.Methods, s.method) {
			continue
		}
		if p, err := parsePattern(grant.URL); err == nil && p.covers(s.url) {
			return grant, true
		}
	}
	return policies.HTTP{}, false
}

// send sends one request.
func (x *exchange) send(ctx context.Context, grant policies.HTTP, s *sending) (*http.Response, error) {
	key := waitKey{x.on.Name, origin(s.url)}
	if err := x.waits.check(key); err != nil {
		return nil, err
	}
	u := *s.url
	request, err := http.NewRequestWithContext(ctx, s.method, "", bytes.NewReader(s.body))
	if err != nil {
		return nil, problemf(hostabi.ErrorInvalid, "%q is no method of HTTP", s.method)
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
		if unreached := (*egress.Unreached)(nil); errors.As(err, &unreached) {
			x.options.Log.Info("Request was not sent", "for", x.on.Name, "host", unreached.Host, "cause", unreached.Cause.Error())
		}
		return nil, explain(ctx, s, err)
	}
	x.waits.note(key, response)
	return response, nil
}

// transport makes what sends a request. There is no pool of connections: what is
// granted may have changed by the next time, and see egress.Config.Once.
func (x *exchange) transport(ctx context.Context, grant policies.HTTP) (http.RoundTripper, error) {
	config := egress.Config{
		Allow: grant.Addresses, Inside: x.options.Inside, Remedy: remedy, Resolver: x.options.Resolver,
		Plain: strings.HasPrefix(grant.URL, "http://"),
		Proxy: egress.Direct, // a proxy resolves names itself, and nobody would judge the addresses
		Once:  true,
	}
	if grant.CA != nil {
		ca, err := x.vault.entry(ctx, x.on, *grant.CA)
		if err != nil {
			return nil, err
		}
		config.CAs = []byte(ca)
	}
	transport, err := egress.NewTransport(config)
	if err != nil && grant.CA != nil {
		return nil, problemf(hostabi.ErrorUnavailable, "entry %s of %s, which a grant names for its ca: %s", grant.CA.Key, grant.CA.NamespacedName, err)
	}
	return transport, err
}

// queryOf reads a query that is to be signed: what is signed must be what is sent.
func queryOf(query string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, problemf(hostabi.ErrorInvalid, "the URL's query can't be signed: write it as name=value with & between, and ; and %% by %%")
	}
	return values, nil
}
