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

// Limits of the response that a module receives.
const (
	maxBodyBytes   = 256 << 10 // bytes of its body
	maxHeaders     = 64
	maxHeaderBytes = 16 << 10
)

// read converts a response to a result, and closes its body.
func (x *httpExchange) read(ctx context.Context, s *httpRequest, response *http.Response) (hostabi.Result, error) {
	defer response.Body.Close()
	if response.StatusCode < 200 {
		return hostabi.Result{}, errorf(hostabi.ErrorUnavailable, "%s responded with a protocol upgrade", origin(s.url))
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, int64(maxBodyBytes+x.redactor.longest()+1)))
	if ctx.Err() != nil { // a body without a length may look complete
		err = ctx.Err()
	}
	if err != nil {
		return hostabi.Result{}, transportError(ctx, s, err)
	}
	result := &hostabi.HTTPResult{
		Status: response.StatusCode, Headers: x.headers(response.Header), Truncated: len(data) > maxBodyBytes,
	}
	body := x.redactor.redactBytes(data, maxBodyBytes)
	body = body[:min(len(body), maxBodyBytes)] // a mask may be longer than the masked text
	if result.Truncated {
		body = trimPartialRune(body)
	}
	if utf8.Valid(body) {
		result.Body = string(body)
	} else {
		result.BodyBase64 = body
	}
	return hostabi.Result{HTTP: result}, nil
}

// trimPartialRune removes an incomplete character at the end.
func trimPartialRune(text []byte) []byte {
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

// headers returns the response headers that the module receives. Cookies are omitted,
// since they may be credentials.
func (x *httpExchange) headers(header http.Header) map[string]string {
	visible := map[string]string{}
	remaining := maxHeaderBytes
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "Set-Cookie" || name == "Set-Cookie2" || x.redactor.contains(name) {
			continue
		}
		value := x.redactor.redact(strings.ToValidUTF8(strings.Join(header[name], ", "), "\uFFFD"))
		if remaining -= len(name) + len(value); remaining < 0 || len(visible) == maxHeaders {
			break
		}
		visible[name] = value
	}
	return visible
}

// redirectTarget returns the request that follows a redirect; nil if the response is final.
func redirectTarget(s *httpRequest, response *http.Response) (*httpRequest, error) {
	location := response.Header.Get("Location")
	if location == "" {
		return nil, nil
	}
	next := &httpRequest{method: s.method, header: s.header.Clone(), body: s.body}
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if s.method != http.MethodGet && s.method != http.MethodHead {
			return nil, nil // the result of a GET, such as a login page, would look like success
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
		return nil, errorf(hostabi.ErrorNotGranted, "%s redirects to an invalid URL", origin(s.url))
	}
	if origin(next.url) != origin(s.url) {
		for _, name := range []string{authorization, "Cookie", "Cookie2", "Proxy-Authenticate", "Www-Authenticate"} {
			next.header.Del(name) // meant for the original server
		}
	}
	return next, nil
}

// transportError returns why there is no response. Messages of net/http that may quote the server
// are omitted.
func transportError(ctx context.Context, s *httpRequest, err error) error {
	var (
		unreached *egress.UnreachableHostError
		refusal   *egress.DeniedError
		untrusted *tls.CertificateVerificationError
		network   *net.OpError
	)
	at := origin(s.url)
	switch {
	case errors.As(err, &unreached):
		return errorf(hostabi.ErrorUnavailable, "%s: %s", at, unreached)
	case errors.As(err, &refusal):
		return errorf(hostabi.ErrorNotGranted, "%s: %s", at, refusal.Message)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errorf(hostabi.ErrorUnavailable, "%s did not respond within %s", at, httpTimeout)
	case ctx.Err() != nil:
		return errorf(hostabi.ErrorUnavailable, "request to %s was interrupted: %s", at, ctx.Err())
	case errors.As(err, &untrusted):
		return errorf(hostabi.ErrorUnavailable, "%s: certificate is not trusted: %s; if a private CA signed it, set ca of the grant", at, untrusted.Err)
	case errors.Is(err, http.ErrSchemeMismatch):
		return errorf(hostabi.ErrorUnavailable, "%s does not support TLS", at)
	case errors.As(err, &network):
		return errorf(hostabi.ErrorUnavailable, "%s: %s", at, egress.RedactAddresses(err))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errorf(hostabi.ErrorUnavailable, "%s closed the connection before the end of the response", at)
	}
	return errorf(hostabi.ErrorUnavailable, "%s sent an invalid response, or was too slow", at)
}
