package intents

import (
	"bufio"
	"bytes"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestParseURL_ReturnsCanonicalForm(t *testing.T) {
	for text, want := range map[string]string{
		"HTTPS://S3.Example.COM":               "https://s3.example.com/",
		"https://s3.example.com.:443/a/":       "https://s3.example.com/a/",
		"http://s3.example.com:0080":           "http://s3.example.com/",
		"https://s3.example.com:080/a":         "https://s3.example.com:80/a",
		"https://s3.example.com:/a":            "https://s3.example.com/a",
		"https://bücher.example/a":             "https://xn--bcher-kva.example/a",
		"https://s3。example。com/a":             "https://s3.example.com/a",
		"https://１２７.0.0.1/a":                  "https://127.0.0.1/a",
		"https://[0:0::1]:8443/a":              "https://[::1]:8443/a",
		"https://h.example/a%20b?x=1&y=%2e%2e": "https://h.example/a%20b?x=1&y=%2e%2e",
		"https://h.example/ü?ü":                "https://h.example/%C3%BC?%C3%BC",
		"https://h.example/a//b/.c/d..":        "https://h.example/a//b/.c/d..",
		"https://h.example/100%25":             "https://h.example/100%25",
	} {
		if u, err := parseURL(text); err != nil || u.String() != want {
			t.Errorf("%s: got %v, %v; want %s", text, u, err, want)
		}
	}
}

func TestParseURL_RejectsAmbiguousURLs(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                      "not absolute",
		"s3.example.com/a":                                      "not absolute",
		"//s3.example.com/a":                                    "not absolute",
		"ftp://s3.example.com/a":                                "not absolute",
		"https:s3.example.com/a":                                "not absolute",
		"https:///a":                                            "not absolute",
		"https://me@s3.example.com/a":                           "user name",
		"https://me:secret@s3.example.com/a":                    "user name",
		"https://s3.example.com@evil.example/a":                 "user name",
		"https://s3.example.com\\@evil.example/a":               "backslash",
		"https://evil.example#@s3.example.com/a":                "fragment",
		"https://s3.example.com/a#b":                            "fragment",
		"https://s3.example.com/a\r\nHost: evil":                "control character",
		"https://s3.example.com/a\tb":                           "control character",
		"https://s3.example.com/a b":                            "space",
		"https://s3.example.com/a\u0085b":                       "control character",
		"https://s3.example.com/\xff":                           "UTF-8",
		"https://s3.example.com/%ff":                            "UTF-8",
		"https://s3.example.com/%c0%ae%c0%ae/a":                 "UTF-8",
		"https://s3.example.com/%00":                            "control character",
		"https://s3.example.com/a%0d%0a":                        "control character",
		"https://s3.example.com/a/../b":                         "segment",
		"https://s3.example.com/a/./b":                          "segment",
		"https://s3.example.com/a/..":                           "segment",
		"https://s3.example.com/a/..;x=1/b":                     "segment",
		"https://s3.example.com/a/..%3bx/b":                     "segment",
		"https://s3.example.com/a/%2e%2e/b":                     "escaped",
		"https://s3.example.com/a/.%2E/b":                       "escaped",
		"https://s3.example.com/a%2fb":                          "escaped",
		"https://s3.example.com/a%5Cb":                          "escaped",
		"https://s3.example.com/a/%252e%252e/b":                 "twice",
		"https://s3.example.com/a/%25252e/b":                    "twice",
		"https://s3.example.com//evil.example/a":                "two slashes",
		"https://s3.example.com/%zz":                            "invalid URL escape",
		"https://s3.example.com:0/a":                            "invalid port",
		"https://s3.example.com:65536/a":                        "invalid port",
		"https://s3.example.com:x/a":                            "invalid port",
		"https://s3..example.com/a":                             "not a valid name",
		"https://s3.example.com../a":                            "not a valid name",
		"https://*.example.com/a":                               "not a valid name",
		"https://2130706433/a":                                  "unusual notation",
		"https://0x7f.1/a":                                      "unusual notation",
		"https://127.1/a":                                       "unusual notation",
		"https://0177.0.0.1/a":                                  "unusual notation",
		"https://127.0.0.0x1/a":                                 "unusual notation",
		"https://0x1000000000000007f000001/a":                   "unusual notation",
		"https://127.0.0.0x/a":                                  "unusual notation",
		"https://[fe80::1%25eth0]/a":                            "zone",
		"https://h.example/" + strings.Repeat("a", maxURLBytes): "more than",
	} {
		if u, err := parseURL(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, %v; want an error with %q", text, u, err, want)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is in %q", err)
		}
	}
}

func TestPattern_Covers(t *testing.T) {
	for _, c := range []struct {
		pattern, url string
		want         bool
	}{
		{"https://s3.example.com/backups/*", "https://s3.example.com/backups/a/b?versionId=1", true},
		{"https://s3.example.com/backups/*", "https://s3.example.com/backups/", true},
		{"https://s3.example.com/backups/*", "HTTPS://S3.example.com.:443/backups/a", true},
		{"https://s3.example.com/backups/*", "https://s3.example.com/%62ackups/a", true},
		{"https://s3.example.com/backups/*", "https://s3.example.com/backups", false},
		{"https://s3.example.com/backups/*", "https://s3.example.com/backups-of-others/a", false},
		{"https://s3.example.com/backups/*", "https://s3.example.com/Backups/a", false},
		{"https://s3.example.com/backups/*", "http://s3.example.com/backups/a", false},
		{"https://s3.example.com/backups/*", "https://s3.example.com:8443/backups/a", false},
		{"https://s3.example.com/backups/*", "https://s3.example.com.evil.example/backups/a", false},
		{"https://s3.example.com/backups/*", "https://evil.example/s3.example.com/backups/a", false},
		{"https://s3.example.com/*", "https://s3.example.com", true},
		{"https://s3.example.com:443/*", "https://s3.example.com/a", true},
		{"https://s3.example.com/a", "https://s3.example.com/a?x", true},
		{"https://s3.example.com/a", "https://s3.example.com/a/", false},
		{"https://s3.example.com/a", "https://s3.example.com/a/b", false},
		{"https://s3.example.com", "https://s3.example.com/", true},
		{"https://s3.example.com", "https://s3.example.com/a", false},
		{"http://[::1]:8080/*", "http://[0::1]:8080/a", true},
	} {
		p, err := parsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		u, err := parseURL(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.covers(u); got != c.want {
			t.Errorf("%s covers %s: %v", c.pattern, c.url, got)
		}
	}
}

// FuzzURL_StaysWithinTheGrant sends matching URLs through net/http's own writer
// and reader, and interprets the path as the most lenient server would.
func FuzzURL_StaysWithinTheGrant(f *testing.F) {
	for _, seed := range []string{
		"https://s3.example.com/backups/a", "https://s3.example.com/backups/../a", "https://s3.example.com/backups/%2e%2e/a",
		"https://s3.example.com/backups/..%2fa", "https://s3.example.com/backups/%252e%252e%252fa", "https://s3.example.com/backups/..;/a",
		"https://s3.example.com\\.evil.example/backups/a", "https://s3.example.com@evil.example/backups/a", "HTTPS://S3.EXAMPLE.COM.:443/%62ackups//x?y#z",
		"https://evil.example/backups/a", "https://s3.example.com/backups/\r\nHost: evil", "https://s3。example。com/backups/．．/a",
		"https://[::ffff:127.0.0.1]/backups/a", "https://[::127.0.0.1]/backups/a", "https://s3.example.com:443:80/backups/a",
		"https://s3.example.com%00.evil.example/backups/a", "https://s3.example.com%2eevil.example/backups/a",
	} {
		f.Add(seed)
	}
	p, err := parsePattern("https://s3.example.com/backups/*")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parseURL(text)
		if err != nil || !p.covers(u) {
			return
		}
		for _, signed := range []bool{false, true} {
			sent := *u
			if signed {
				sent.RawPath = escapePath(u.Path)
			}
			received := sendAndReceive(t, &sent)
			if received.Host != "s3.example.com" {
				t.Errorf("%q reaches host %q", text, received.Host)
			}
			if got := lenientPath(received.RequestURI); !strings.HasPrefix(got, "/backups/") && got != "/backups" {
				t.Errorf("%q reaches %q", text, got)
			}
		}
	})
}

// number matches what inet_aton of the C library, or a similar parser, may read as a part
// of an address.
var number = regexp.MustCompile(`^(0x[0-9a-f]*|[0-9]+)$`)

// FuzzURL_HasOneNotationForAddresses checks that the host of a parsed URL is either an
// address in the notation that every resolver accepts, or a name to all of them; and that
// loopback, private and metadata addresses are rejected in every notation without a grant.
func FuzzURL_HasOneNotationForAddresses(f *testing.F) {
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.0.0.1.", "１２７.0.0.1", "[::1]", "[::127.0.0.1]", "[::ffff:127.0.0.1]",
		"[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[2001:0:5db8:d70e::80ff:fffe]", "[64:ff9b:1::a9fe:a9fe]",
		"[fe80::5efe:10.0.0.1]", "[fd00:ec2::254]", "[::]", "0", "0.0.0.0", "[fe80::1%25eth0]", "example.com", "127.0.0.1.nip.io",
	} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		u, err := parseURL("http://" + host + "/")
		if err != nil {
			return
		}
		name := u.Hostname()
		received := sendAndReceive(t, u)
		if received.Host != u.Host {
			t.Errorf("%q is sent as %q", host, received.Host)
		}
		address, err := netip.ParseAddr(name)
		if err != nil {
			if labels := strings.Split(name, "."); number.MatchString(labels[len(labels)-1]) {
				t.Errorf("%q may be read as an address", name)
			}
			return
		}
		if address.String() != name || address.Zone() != "" {
			t.Errorf("%q is spelled otherwise than %s", name, address)
		}
		mapped := netip.AddrFrom16(address.As16()).Unmap()
		if mapped.IsLoopback() || mapped.IsPrivate() || mapped.IsLinkLocalUnicast() || mapped.IsUnspecified() {
			intent := hostabi.HTTPIntent{Method: http.MethodGet, URL: u.String()}
			identity := Identity{Grants: policies.Grants{HTTP: []policies.HTTPRule{{URL: "http://" + u.Host + "/*", Methods: []string{http.MethodGet}}}}}
			if r := New(Options{}).Do(t.Context(), identity, hostabi.Intent{ID: "a", HTTP: &intent}); r.Error == nil || r.Error.Reason != hostabi.ErrorNotGranted {
				t.Errorf("%q is requested: %v", name, r.Error)
			}
		}
	})
}

func sendAndReceive(t *testing.T, u *url.URL) *http.Request {
	t.Helper()
	var wire bytes.Buffer
	if err := (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).Write(&wire); err != nil {
		t.Fatal(err)
	}
	received, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatalf("%q can't be read by a server: %v", u, err)
	}
	return received
}

// lenientPath interprets a path like servers that decode repeatedly, treat a backslash as a
// slash, and drop parameters.
func lenientPath(uri string) string {
	at, _, _ := strings.Cut(uri, "?")
	for range 10 {
		if decoded, err := url.PathUnescape(at); err == nil {
			at = decoded
		}
	}
	var steps []string
	for step := range strings.SplitSeq(strings.ReplaceAll(at, `\`, "/"), "/") {
		if bare, _, _ := strings.Cut(step, ";"); bare == ".." {
			step = bare
		}
		steps = append(steps, step)
	}
	return path.Clean(strings.Join(steps, "/"))
}
