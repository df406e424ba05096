package intents

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// maxURLBytes is the maximum length of a URL in bytes.
const maxURLBytes = 8 << 10

// parseURL parses a URL into the canonical form that is matched and sent. URLs that a
// server could interpret differently are rejected.
func parseURL(text string) (*url.URL, error) {
	switch {
	case len(text) > maxURLBytes:
		return nil, fmt.Errorf("it has more than %d bytes", maxURLBytes)
	case !utf8.ValidString(text):
		return nil, errors.New("it is not valid UTF-8")
	case strings.ContainsFunc(text, func(r rune) bool { return r == '\\' || unicode.IsSpace(r) || unicode.IsControl(r) }):
		return nil, errors.New("it contains a backslash, space or control character: escape or remove it")
	case strings.Contains(text, "#"):
		return nil, errors.New("it has a fragment, which is not sent to servers: remove # and the rest")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, withoutURL(err)
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "" || u.Host == "" {
		return nil, errors.New("it is not absolute: write https://, a host and a path")
	}
	if u.User != nil {
		return nil, errors.New("it contains a user name or password: remove them, and use basicAuth of the grant")
	}
	host, err := canonicalHost(u)
	if err != nil {
		return nil, err
	}
	path, err := canonicalPath(u)
	if err != nil {
		return nil, err
	}
	out := &url.URL{Scheme: u.Scheme, Host: host, RawPath: path, RawQuery: escapeNonASCII(u.RawQuery)}
	if out.Path, err = url.PathUnescape(path); err != nil {
		return nil, withoutURL(err)
	}
	return out, nil
}

// withoutURL returns the error without the URL, which may contain a secret.
func withoutURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// canonicalHost returns the canonical host, with the port unless it is the scheme's default.
func canonicalHost(u *url.URL) (string, error) {
	name, err := canonicalHostname(strings.ToLower(u.Hostname()))
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		return name, nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return "", fmt.Errorf("invalid port %s: write one from 1 to 65535", port)
	}
	if u.Scheme == "https" && number == 443 || u.Scheme == "http" && number == 80 {
		return name, nil
	}
	return name + ":" + strconv.FormatUint(number, 10), nil
}

func canonicalHostname(host string) (string, error) {
	if strings.Contains(host, ":") {
		address, err := netip.ParseAddr(host)
		if err != nil || address.Zone() != "" {
			return "", errors.New("its host is not a valid IPv6 address: write one without a zone")
		}
		return "[" + address.String() + "]", nil
	}
	host = strings.TrimSuffix(host, ".")
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		var err error
		if host, err = idna.Lookup.ToASCII(host); err != nil {
			return "", errors.New("its host is not a valid name: write letters, digits, '-' and '.'")
		}
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", errors.New("its host is not a valid name: write letters, digits, '-' and '.'")
		}
	}
	// Some resolvers parse a name that ends with a number as an address, in many notations.
	if isNumber(labels[len(labels)-1]) {
		if address, err := netip.ParseAddr(host); err != nil || !address.Is4() {
			return "", errors.New("its host is an address in an unusual notation: write four decimal numbers separated by dots")
		}
	}
	return host, nil
}

// isNumber reports whether some resolver may parse a label as a number of any size.
func isNumber(label string) bool {
	if _, err := strconv.ParseUint(label, 0, 64); err == nil {
		return true
	}
	if hex, is := strings.CutPrefix(label, "0x"); is {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// canonicalPath returns the path that is sent. Decoded, it has no segment that any server could
// interpret as a parent directory.
func canonicalPath(u *url.URL) (string, error) {
	path := u.EscapedPath()
	if path == "" {
		return "/", nil
	}
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+2 >= len(path) {
			continue
		}
		switch value, _ := strconv.ParseUint(path[i+1:i+3], 16, 8); value {
		case '.', '/', '\\':
			return "", errors.New("its path contains an escaped dot, slash or backslash: write it unescaped, or remove it")
		}
	}
	decoded, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return "", withoutURL(err)
	case !utf8.ValidString(decoded) || strings.ContainsFunc(decoded, unicode.IsControl):
		return "", errors.New("its path is not valid UTF-8, or contains a control character")
	case containsEscape(decoded):
		return "", errors.New("its path is escaped twice: escape it once")
	case strings.HasPrefix(decoded, "//"):
		return "", errors.New("its path begins with two slashes: write one")
	}
	for step := range strings.SplitSeq(decoded, "/") {
		if step, _, _ = strings.Cut(step, ";"); step == "." || step == ".." {
			return "", errors.New("its path has the segment . or ..: write the resolved path")
		}
	}
	return path, nil
}

// containsEscape reports whether a text contains a %-escape.
func containsEscape(text string) bool {
	for i := 0; i+2 < len(text); i++ {
		if text[i] != '%' {
			continue
		}
		if _, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
			return true
		}
	}
	return false
}

// escapeNonASCII escapes the non-ASCII bytes of a query.
func escapeNonASCII(query string) string {
	var b strings.Builder
	for i := range len(query) {
		if query[i] < utf8.RuneSelf {
			b.WriteByte(query[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", query[i])
		}
	}
	return b.String()
}

// origin returns the scheme and host of a URL.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// withoutQuery returns the URL without its query, which may contain a secret.
func withoutQuery(u *url.URL) string { return origin(u) + u.EscapedPath() }

// A pattern is the URL of a grant.
type pattern struct {
	url    *url.URL
	prefix bool // matches all URLs with this prefix
}

func parsePattern(text string) (pattern, error) {
	bare, below := strings.CutSuffix(text, "/*")
	if below {
		bare += "/"
	}
	switch {
	case strings.ContainsAny(bare, "*"):
		return pattern{}, errors.New("* is only allowed at the end, after a slash: it covers all paths below")
	case strings.ContainsAny(bare, "?%"):
		return pattern{}, errors.New("it contains a query or %: remove the query, since requests may have any, and write the path unescaped")
	}
	u, err := parseURL(bare)
	if err != nil {
		return pattern{}, err
	}
	return pattern{u, below}, nil
}

// covers reports whether the pattern matches a URL. Paths are compared unescaped, as the
// server reads them.
func (p pattern) covers(u *url.URL) bool {
	if u.Scheme != p.url.Scheme || u.Host != p.url.Host {
		return false
	}
	if p.prefix {
		return strings.HasPrefix(u.Path, p.url.Path)
	}
	return u.Path == p.url.Path
}
