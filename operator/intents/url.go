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

// mostURL bounds a URL, in bytes.
const mostURL = 8 << 10

// parseURL reads a URL into the one form that is matched and sent. What could mean
// one thing here and another to the server is refused and not interpreted.
func parseURL(text string) (*url.URL, error) {
	switch {
	case len(text) > mostURL:
		return nil, fmt.Errorf("it has more than %d bytes", mostURL)
	case !utf8.ValidString(text):
		return nil, errors.New("it is no UTF-8 text")
	case strings.ContainsFunc(text, func(r rune) bool { return r == '\\' || unicode.IsSpace(r) || unicode.IsControl(r) }):
		return nil, errors.New("it has a backslash, a space or a control character in it: write those by %, or leave them out")
	case strings.Contains(text, "#"):
		return nil, errors.New("it has a fragment, which no server is sent: leave out # and what follows")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, cause(err)
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Opaque != "" || u.Host == "" {
		return nil, errors.New("it is not absolute: write https://, a host and a path")
	}
	if u.User != nil {
		return nil, errors.New("it has a user name or a password in it: leave them out, and have a grant add them")
	}
	host, err := hostOf(u)
	if err != nil {
		return nil, err
	}
	path, err := pathOf(u)
	if err != nil {
		return nil, err
	}
	out := &url.URL{Scheme: u.Scheme, Host: host, RawPath: path, RawQuery: ascii(u.RawQuery)}
	if out.Path, err = url.PathUnescape(path); err != nil {
		return nil, cause(err)
	}
	return out, nil
}

// cause is an error without the URL that it is about, which may have a secret in it.
func cause(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// hostOf is the host in the one form that it has here, with a port if that is not
// the scheme's own.
func hostOf(u *url.URL) (string, error) {
	name, err := nameOf(strings.ToLower(u.Hostname()))
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		return name, nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return "", fmt.Errorf("%s is no port: write one from 1 to 65535", port)
	}
	if u.Scheme == "https" && number == 443 || u.Scheme == "http" && number == 80 {
		return name, nil
	}
	return name + ":" + strconv.FormatUint(number, 10), nil
}

func nameOf(host string) (string, error) {
	if strings.Contains(host, ":") {
		address, err := netip.ParseAddr(host)
		if err != nil || address.Zone() != "" {
			return "", errors.New("its host is no address that can be reached: write one without a zone")
		}
		return "[" + address.String() + "]", nil
	}
	host = strings.TrimSuffix(host, ".")
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		var err error
		if host, err = idna.Lookup.ToASCII(host); err != nil {
			return "", errors.New("its host is no name: write letters, digits, '-' and '.'")
		}
	}
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", errors.New("its host is no name: write letters, digits, '-' and '.'")
		}
	}
	// What ends in a number some resolvers take for an address, in whatever spelling.
	if isNumber(labels[len(labels)-1]) {
		if address, err := netip.ParseAddr(host); err != nil || !address.Is4() {
			return "", errors.New("its host is an address in an unusual spelling: write four numbers with dots between")
		}
	}
	return host, nil
}

// isNumber tells whether some resolver takes a label for a number, of any size.
func isNumber(label string) bool {
	if _, err := strconv.ParseUint(label, 0, 64); err == nil {
		return true
	}
	if hex, is := strings.CutPrefix(label, "0x"); is {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// pathOf is the path as it is sent. Decoded, no step of it leads upwards, in none of
// the readings that servers have of such steps.
func pathOf(u *url.URL) (string, error) {
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
			return "", errors.New("its path has a dot, a slash or a backslash that is written by %: write it as it is, or leave it out")
		}
	}
	decoded, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return "", cause(err)
	case !utf8.ValidString(decoded) || strings.ContainsFunc(decoded, unicode.IsControl):
		return "", errors.New("its path is no UTF-8 text, or has a control character in it")
	case encoded(decoded):
		return "", errors.New("its path is encoded by % twice: once is enough")
	case strings.HasPrefix(decoded, "//"):
		return "", errors.New("its path begins with two slashes: write one")
	}
	for step := range strings.SplitSeq(decoded, "/") {
		if step, _, _ = strings.Cut(step, ";"); step == "." || step == ".." {
			return "", errors.New("its path has . or .. as a step of it: write the path that is meant")
		}
	}
	return path, nil
}

// encoded tells whether a text has a byte in it that is written by %.
func encoded(text string) bool {
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

// ascii writes what is beyond ASCII by %.
func ascii(query string) string {
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

// origin is where a URL's server is.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// place is a URL without its query, which may have a secret in it.
func place(u *url.URL) string { return origin(u) + u.EscapedPath() }

// pattern is the URL of a grant.
type pattern struct {
	url   *url.URL
	below bool // whatever begins with it
}

func parsePattern(text string) (pattern, error) {
	bare, below := strings.CutSuffix(text, "/*")
	if below {
		bare += "/"
	}
	switch {
	case strings.ContainsAny(bare, "*"):
		return pattern{}, errors.New("it has * where that means nothing: write it at the end, after a slash, for all that is below")
	case strings.ContainsAny(bare, "?%"):
		return pattern{}, errors.New("it has a query, or % in it: leave the query out, since a request may have any, and write the path as it is meant")
	}
	u, err := parseURL(bare)
	if err != nil {
		return pattern{}, err
	}
	return pattern{u, below}, nil
}

// covers reports whether a URL is granted. The path counts as the server reads it:
// what is written by % there is the same as what it stands for.
func (p pattern) covers(u *url.URL) bool {
	if u.Scheme != p.url.Scheme || u.Host != p.url.Host {
		return false
	}
	if p.below {
		return strings.HasPrefix(u.Path, p.url.Path)
	}
	return u.Path == p.url.Path
}
