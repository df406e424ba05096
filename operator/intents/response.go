package intents

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

// Bounds of what a module is shown of a response.
const (
	mostReceived     = 256 << 10 // bytes of its body
	mostHeaders      = 64
	mostHeadersBytes = 16 << 10
)

// read makes a result of a response, and closes its body.
func (x *exchange) read(ctx context.Context, s *sending, response *http.Response) (hostabi.Result, error) {
	defer response.Body.Close()
	if response.StatusCode < 200 {
		return hostabi.Result{}, problemf(hostabi.ErrorUnavailable, "%s wants to speak something else than HTTP", origin(s.url))
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, int64(mostReceived+x.hidden.longest()+1)))
	if ctx.Err() != nil { // a body without a length may look complete
		err = ctx.Err()
	}
	if err != nil {
		return hostabi.Result{}, explain(ctx, s, err)
	}
	result := &hostabi.HTTPResult{
		Status: response.StatusCode, Headers: x.headers(response.Header), Truncated: len(data) > mostReceived,
	}
	shown := x.hidden.mask(data, mostReceived)
	shown = shown[:min(len(shown), mostReceived)] // a mask may be longer than what is under it
	if result.Truncated {
		shown = wholeRunes(shown)
	}
	if utf8.Valid(shown) {
		result.Body = string(shown)
	} else {
		result.BodyBase64 = shown
	}
	return hostabi.Result{HTTP: result}, nil
}

// wholeRunes leaves out a character at the end, of which there is only the beginning.
func wholeRunes(text []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-n]
			}
			break
		}
	}
	return text
}

// headers are what a module is shown of a response's header. Cookies are for
// browsers, and may be as good as a password.
func (x *exchange) headers(header http.Header) map[string]string {
	shown := map[string]string{}
	left := mostHeadersBytes
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "Set-Cookie" || name == "Set-Cookie2" || x.hidden.in(name) {
			continue
		}
		value := x.hidden.text(strings.ToValidUTF8(strings.Join(header[name], ", "), "\uFFFD"))
		if left -= len(name) + len(value); left < 0 || len(shown) == mostHeaders {
			break
		}
		shown[name] = value
	}
	return shown
}

// redirected is where a response sends a request, or nil: it is the answer.
func redirected(s *sending, response *http.Response) (*sending, error) {
	location := response.Header.Get("Location")
	if location == "" {
		return nil, nil
	}
	next := &sending{method: s.method, header: s.header.Clone(), body: s.body}
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if s.method != http.MethodGet && s.method != http.MethodHead {
			return nil, nil // a page that a GET finds, such as a login's, would look as if it had been done
		}
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	target, err := url.Parse(location)
	if err == nil {
		target = s.url.ResolveReference(target)
		target.Fragment, target.RawFragment = "", "" // for browsers
		next.url, err = parseURL(target.String())
	}
	if err != nil {
		return nil, problemf(hostabi.ErrorNotGranted, "%s sends on to something that is no URL to which anything is sent", origin(s.url))
	}
	if origin(next.url) != origin(s.url) {
		for _, name := range []string{authorization, "Cookie", "Cookie2", "Proxy-Authenticate", "Www-Authenticate"} {
			next.header.Del(name) // the module wrote it for another server
		}
	}
	return next, nil
}

// explain says why there is no response. Texts of net/http that may quote a server
// are left out.
func explain(ctx context.Context, s *sending, err error) error {
	var (
		unreached *egress.Unreached
		refusal   *egress.Refusal
		untrusted *tls.CertificateVerificationError
		network   *net.OpError
	)
	at := origin(s.url)
	switch {
	case errors.As(err, &unreached):
		return problemf(hostabi.ErrorUnavailable, "%s: %s", at, unreached)
	case errors.As(err, &refusal):
		return problemf(hostabi.ErrorNotGranted, "%s: %s", at, refusal.Message)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return problemf(hostabi.ErrorUnavailable, "%s did not answer within %s", at, httpTimeout)
	case ctx.Err() != nil:
		return problemf(hostabi.ErrorUnavailable, "%s was asked, and nobody waited for the answer: %s", at, ctx.Err())
	case errors.As(err, &untrusted):
		return problemf(hostabi.ErrorUnavailable, "%s: its certificate is not believed: %s; if it is one of your own authority, write that into ca of the grant", at, untrusted.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return problemf(hostabi.ErrorUnavailable, "%s does not speak TLS", at)
	case errors.As(err, &network):
		return problemf(hostabi.ErrorUnavailable, "%s: %s", at, egress.Cause(err))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return problemf(hostabi.ErrorUnavailable, "%s hung up before the end of its answer", at)
	}
	return problemf(hostabi.ErrorUnavailable, "%s gave an answer that makes no sense, or took too long with it", at)
}
