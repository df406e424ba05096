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
	// leastHidden is from how many bytes on a value is hidden. What is shorter is no
	// secret, and occurs everywhere.
	leastHidden = 4

	// leastPart is the same for a part of a value, such as the token after Bearer.
	leastPart = 8

	mask = "***"
)

// hidden are credentials, in the spellings in which a server may send them back. The
// zero hidden hides nothing. Case does not count: hosts have none.
type hidden struct{ spellings []string } // in lower case

// add hides a value, and the parts of one that has several.
func (h *hidden) add(value string) {
	h.spell(value, leastHidden)
	parts := strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t\r\n,;\"'", r) })
	for _, part := range parts {
		h.spell(part, leastPart)
		if clear, err := base64.StdEncoding.DecodeString(part); err == nil && len(parts) > 1 { // Basic
			_, password, _ := strings.Cut(string(clear), ":")
			h.spell(string(clear), leastHidden)
			h.spell(password, leastHidden)
		}
	}
}

func (h *hidden) spell(value string, least int) {
	if len(value) < least {
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
	_ = e.Encode(value) // a string can always be written
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// lower changes ASCII alone, and so no length.
func lower(data []byte) []byte {
	out := bytes.Clone(data)
	for i, c := range out {
		if c >= 'A' && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}

// longest is the length of the longest spelling: who reads so much more than he
// wants finds one that begins within it.
func (h *hidden) longest() int {
	most := 0
	for _, s := range h.spellings {
		most = max(most, len(s))
	}
	return most
}

// text masks what is hidden.
func (h *hidden) text(text string) string { return string(h.mask([]byte(text), len(text))) }

// mask returns the first bytes of data, with what is hidden masked. Overlapping
// spellings are masked as one, so that of none an end is left.
func (h *hidden) mask(data []byte, most int) []byte {
	found := h.find(data)
	most = min(most, len(data))
	if len(found) == 0 {
		return data[:most]
	}
	var out []byte
	at := 0
	for _, f := range found {
		if f.from >= most {
			break
		}
		if f.from >= at {
			out = append(append(out, data[at:f.from]...), mask...)
		}
		at = max(at, f.to)
	}
	if at < most {
		out = append(out, data[at:most]...)
	}
	return out
}

type span struct{ from, to int }

// find returns where something hidden is, in order.
func (h *hidden) find(data []byte) []span {
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

// in tells whether a text has something hidden in it.
func (h *hidden) in(text string) bool { return len(h.find([]byte(text))) != 0 }

// problem masks what is hidden in an error's text.
func (h *hidden) problem(err error) error {
	masked := &problem{hostabi.ErrorUnavailable, h.text(err.Error())}
	if p := new(problem); errors.As(err, &p) {
		masked.reason = p.reason
	}
	return masked
}
