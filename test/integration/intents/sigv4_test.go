package intents

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	accessKey = "AKIDEXAMPLEEXAMPLE"
	secretKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	token     = "session/token=="
)

func TestHTTP_SignatureV4_IsValid(t *testing.T) {
	w := newEnv(t, "secrets get", "configmaps get")
	w.createSecret("keys", map[string]string{"id": accessKey, "secret": secretKey, "token": token})
	var sent *http.Request
	s := w.serveTLS(func(out http.ResponseWriter, r *http.Request) {
		sent = r
		body, err := io.ReadAll(r.Body)
		if wrong := verify(r, body, secretKey); wrong != "" || err != nil {
			http.Error(out, wrong, http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(out, r.RequestURI)
	})
	signing := func(service string, session bool) func(*policies.HTTPRule) {
		return func(h *policies.HTTPRule) {
			h.SigV4 = &policies.SigV4{
				Region: "eu-central-1", Service: service, AccessKeyID: w.secretKey("keys", "id"), SecretAccessKey: w.secretKey("keys", "secret"),
			}
			if key := w.secretKey("keys", "token"); session {
				h.SigV4.SessionToken = &key
			}
		}
	}
	for _, c := range []struct {
		service      string
		session      bool
		method, path string
		body         string
	}{
		{"s3", false, "GET", "/bucket/?list-type=2&prefix=a%2Fb&max-keys=5", ""},
		{"s3", true, "PUT", "/bucket/a%20key/with=odd:signs+&@,$!'()*~.txt", "body"},
		{"s3", false, "DELETE", "/bucket/%C3%BC//x%25?versionId=%2B1&a=b%20c&a=", ""},
		{"s3", true, "POST", "/bucket?delete", "<Delete/>"},
		{"execute-api", false, "GET", "/stage/a%20b?z=1&y", ""},
		{"sqs", true, "POST", "/", "Action=SendMessage"},
	} {
		w.on.Grants.HTTP = nil
		w.grantHTTP(s, signing(c.service, c.session))
		r := w.execute(hostabi.Intent{HTTP: &hostabi.HTTPIntent{
			Method: c.method, URL: s.URL + c.path, Body: c.body, Headers: map[string]string{"X-Amz-Meta-A": "  a   b "},
		}})
		if r.HTTP == nil || r.HTTP.Status != http.StatusOK {
			t.Errorf("%s %s %s: %s", c.service, c.method, c.path, describe(r))
		}
		if got := sent.Header.Get("X-Amz-Security-Token"); (got == token) != c.session {
			t.Errorf("%s %s: the session token is %q", c.service, c.path, got)
		}
		w.expectRedacted(r, secretKey, accessKey, token)
	}
	w.expectError(w.sendHTTP("GET", s.URL, "X-Amz-Date", "20260102T030405Z"), hostabi.ErrorNotGranted, "X-Amz-Date")
	w.expectError(w.sendHTTP("GET", s.URL+"/?a;b"), hostabi.ErrorInvalid, "query")

	w.createSecret("wrong", map[string]string{"secret": "another-secret-key"})
	w.on.Grants.HTTP[0].SigV4.SecretAccessKey = w.secretKey("wrong", "secret")
	if r := w.sendHTTP("GET", s.URL); r.HTTP == nil || r.HTTP.Status != http.StatusForbidden {
		t.Errorf("request signed with another key was accepted: %s", describe(r))
	}
}

// verify checks a signature according to the specification of Signature Version 4. It
// returns what is wrong, or "".
func verify(r *http.Request, body []byte, secret string) string {
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "), ", ") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 {
		return "no credential in " + r.Header.Get("Authorization")
	}
	service := scope[3]
	payload := hash(body)
	if service == "s3" && r.Header.Get("X-Amz-Content-Sha256") != payload {
		return "the body's hash is " + r.Header.Get("X-Amz-Content-Sha256")
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	if service == "s3" {
		path = uriEncode(must(url.PathUnescape(path)), true)
	} else {
		path = uriEncode(path, true)
	}
	var headers strings.Builder
	for name := range strings.SplitSeq(fields["SignedHeaders"], ";") {
		value := cmp.Or(strings.Join(r.Header.Values(name), ","), map[string]string{
			"host": r.Host, "content-length": fmt.Sprint(r.ContentLength),
		}[name])
		fmt.Fprintf(&headers, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	for _, needed := range []string{"host", "x-amz-date", "x-amz-meta-a"} {
		if r.Header.Get(needed) != "" && !slices.Contains(strings.Split(fields["SignedHeaders"], ";"), needed) {
			return needed + " is not signed"
		}
	}
	canonical := strings.Join([]string{r.Method, path, canonicalQuery(query), headers.String(), fields["SignedHeaders"], payload}, "\n")
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", r.Header.Get("X-Amz-Date"), strings.Join(scope[1:], "/"), hash([]byte(canonical))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range append(scope[1:], toSign) {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	if hex.EncodeToString(key) != fields["Signature"] {
		return "wrong signature for canonical request " + canonical
	}
	return ""
}

func canonicalQuery(query string) string {
	if query == "" {
		return ""
	}
	var pairs [][2]string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		pairs = append(pairs, [2]string{uriEncode(must(url.QueryUnescape(name)), false), uriEncode(must(url.QueryUnescape(value)), false)})
	}
	slices.SortFunc(pairs, func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	var out []string
	for _, p := range pairs {
		out = append(out, p[0]+"="+p[1])
	}
	return strings.Join(out, "&")
}

func uriEncode(text string, slashes bool) string {
	text = strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
	text = strings.ReplaceAll(text, "%7E", "~")
	if slashes {
		text = strings.ReplaceAll(text, "%2F", "/")
	}
	return text
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// must returns text that cannot be decoded unchanged; its signature is then wrong.
func must(text string, err error) string {
	if err != nil {
		return err.Error()
	}
	return text
}
