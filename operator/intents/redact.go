package intents

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	// minRedactedBytes is the minimum length of a redacted value in bytes. Shorter values are
	// not secret, and too common.
	minRedactedBytes = 4

	// minRedactedPartBytes is the minimum length of a redacted part, such as the token after Bearer.
	minRedactedPartBytes = 8

	mask = "***"
)

// redactor redacts credentials in the encodings in which a server may send them back. The
// zero hidden redacts nothing. Matching ignores case, as host names do.
type redactor struct{ spellings []string } // in lower case

// add redacts a value and, if it has several parts, each of them.
func (h *redactor) add(value string) {
	h.addSpellings(value, minRedactedBytes)
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t\r\n,;\"'", r) })
	for _, part := range parts {
		h.addSpellings(part, minRedactedPartBytes)
		if clear, err := base64.StdEncoding.DecodeString(part); err == nil && len(parts) > 1 { // Basic
			_, password, _ := strings.Cut(string(clear), ":")
			h.addSpellings(string(clear), minRedactedBytes)
			h.addSpellings(password, minRedactedBytes)
		}
	}
}

func (h *redactor) addSpellings(value string, minBytes int) {
	if len(value) < minBytes {
		return
	}
	all := []string{
		value, html.EscapeString(value), strings.Trim(strconv.Quote(value), `"`), hex.EncodeToString([]byte(value)),
		base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)),
		url.QueryEscape(value), url.PathEscape(value), strings.ReplaceAll(url.QueryEscape(value), "+", "%20"),
	}
	for _, escape := range []bool{true, false} {
		inJSON := jsonText(value, escape)
		all = append(all, inJSON, strings.ReplaceAll(inJSON, "/", `\/`))
	}
	for _, spelling := range all {
		spelling = string(lower([]byte(spelling)))
		if !slices.Contains(h.spellings, spelling) {
			h.spellings = append(h.spellings, spelling)
		}
	}
}

func jsonText(value string, escapeHTML bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(escapeHTML)
	_ = e.Encode(value) // strings can always be encoded
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// lower converts ASCII to lower case, so lengths do not change.
func lower(data []byte) []byte {
	out := bytes.Clone(data)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}

// longest returns the length of the longest spelling: after reading that much more than
// needed, a match that begins within the needed part is complete.
func (h *redactor) longest() int {
	length := 0
	for _, s := range h.spellings {
		length = max(length, len(s))
	}
	return length
}

// redact redacts a string.
func (h *redactor) redact(text string) string { return string(h.redactBytes([]byte(text), len(text))) }

// redactBytes returns the first bytes of data, redacted. Overlapping matches are masked as one,
// so that no end of a match is left.
func (h *redactor) redactBytes(data []byte, maxBytes int) []byte {
	found := h.find(data)
	maxBytes = min(maxBytes, len(data))
	if len(found) == 0 {
		return data[:maxBytes]
	}
	var out []byte
	at := 0
	for _, f := range found {
		if f.from >= maxBytes {
			break
		}
		if f.from >= at {
			out = append(append(out, data[at:f.from]...), mask...)
		}
		at = max(at, f.to)
	}
	if at < maxBytes {
		out = append(out, data[at:maxBytes]...)
	}
	return out
}

type span struct{ from, to int }

// find returns the matches in order.
func (h *redactor) find(data []byte) []span {
	if len(h.spellings) == 0 {
		return nil
	}
	var found []span
	data = lower(data)
	for _, s := range h.spellings {
		for at := 0; ; at++ {
			i := bytes.Index(data[at:], []byte(s))
			if i < 0 {
				break
			}
			at += i
			found = append(found, span{at, at + len(s)})
		}
	}
	slices.SortFunc(found, func(a, b span) int { return a.from - b.from })
	return found
}

// contains reports whether a text contains a credential.
func (h *redactor) contains(text string) bool { return len(h.find([]byte(text))) != 0 }

// redactError returns the error with its message redacted.
func (h *redactor) redactError(err error) error {
	masked := &intentError{hostabi.ErrorUnavailable, h.redact(err.Error())}
	if p := new(intentError); errors.As(err, &p) {
		masked.reason = p.reason
	}
	return masked
}
