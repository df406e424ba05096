package intents

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

func TestRedactor_MasksEachEncoding(t *testing.T) {
	const secret = `Hunter2/"<&é+ x`
	var h redactor
	h.add(secret)
	inJSON, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	for name, spelling := range map[string]string{
		"as it is":       secret,
		"in lower case":  strings.ToLower(secret),
		"in JSON":        strings.Trim(string(inJSON), `"`),
		"in JSON of PHP": strings.ReplaceAll(strings.Trim(string(inJSON), `"`), "/", `\/`),
		"in HTML":        html.EscapeString(secret),
		"in Go":          strings.Trim(strconv.Quote(secret), `"`),
		"in a query":     url.QueryEscape(secret),
		"in a path":      strings.ToLower(url.PathEscape(secret)),
		"in base64":      base64.StdEncoding.EncodeToString([]byte(secret)),
		"for URLs":       base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"in hex":         strings.ToUpper(hex.EncodeToString([]byte(secret))),
	} {
		if got := h.redact("a " + spelling + " b"); got != "a *** b" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestRedactor_MasksParts(t *testing.T) {
	var h redactor
	h.add("Bearer abcdefgh12345")
	h.add("Basic " + base64.StdEncoding.EncodeToString([]byte("me:hunter2")))
	if got := h.redact("Bearer of abcdefgh12345, me:hunter2 or hunter2"); got != "Bearer of ***, *** or ***" {
		t.Errorf("got %q", got)
	}
}

func TestRedactor_MasksOverlapsAsOne(t *testing.T) {
	var h redactor
	h.add("abcd")
	h.add("cdefgh")
	if got := h.redact("-abcdefgh-abcd-cdefgh-"); got != "-***-***-***-" {
		t.Errorf("got %q", got)
	}
}

func TestRedactor_MasksTruncatedValues(t *testing.T) {
	var h redactor
	h.add("secret")
	if got := string(h.redactBytes([]byte("0123secret89"), 7)); got != "0123***" {
		t.Errorf("got %q", got)
	}
	if got := string(h.redactBytes([]byte("0123secret89"), 11)); got != "0123***8" {
		t.Errorf("got %q", got)
	}
}

func TestRedactor_IgnoresShortValues(t *testing.T) {
	var h redactor
	h.add("no")
	h.add("")
	if got := h.redact("no, nothing"); got != "no, nothing" {
		t.Errorf("got %q", got)
	}
}
