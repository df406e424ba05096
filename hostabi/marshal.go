package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// MarshalRequest encodes a request for a module. Every list and map is present,
// even if empty, so that a policy need not check for it.
func MarshalRequest(r Request) ([]byte, error) {
	r.APIVersion = Version
	if r.Owners == nil {
		r.Owners = []Owner{}
	}
	if r.Dependents.ByKind == nil {
		r.Dependents.ByKind = []KindCount{}
	}
	if r.Results == nil {
		r.Results = map[string]Result{}
	}
	if r.Withheld == nil {
		r.Withheld = []string{}
	}
	if len(r.Policy.Settings) == 0 {
		r.Policy.Settings = json.RawMessage("{}")
	}
	data, err := marshal(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("encode request: %w", err)
	case len(data) > MaxRequestBytes:
		return nil, fmt.Errorf("encode request: %d bytes exceed the limit of %d", len(data), MaxRequestBytes)
	}
	return data, nil
}

// MarshalVerdict encodes a verdict so that ParseVerdict can parse it. It does not
// validate the verdict.
func MarshalVerdict(v Verdict) ([]byte, error) {
	if err := checkDocuments(v); err != nil {
		return nil, fmt.Errorf("encode verdict: %w", err)
	}
	if len(v.Intents) == 0 {
		return appendVerdict(nil, v), nil
	}
	data, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode verdict: %w", err)
	}
	return data, nil
}

// appendVerdict appends a verdict without intents, as marshal does, but without reflection,
// which takes longer than the rest of a small module. Its state is JSON.
func appendVerdict(b []byte, v Verdict) []byte {
	b = append(b, `{"decision":`...)
	b = appendText(b, string(v.Decision))
	if v.Propagation != "" {
		b = appendText(append(b, `,"propagation":`...), string(v.Propagation))
	}
	if v.GracePeriodSeconds != nil {
		b = strconv.AppendInt(append(b, `,"gracePeriodSeconds":`...), *v.GracePeriodSeconds, 10)
	}
	if v.Delay != 0 {
		b = appendText(append(b, `,"delay":`...), v.Delay.String())
	}
	if v.After != 0 {
		b = appendText(append(b, `,"after":`...), v.After.String())
	}
	for i, d := range v.Dependents {
		b = append(b, [...]string{`,"dependents":[{`, `,{`}[min(i, 1)]...)
		if d.Group != "" {
			b = append(appendText(append(b, `"group":`...), d.Group), ',')
		}
		b = appendText(append(b, `"kind":`...), d.Kind)
		b = append(appendText(append(b, `,"decision":`...), string(d.Decision)), '}')
	}
	if len(v.Dependents) != 0 {
		b = append(b, ']')
	}
	if len(v.State) != 0 {
		var state bytes.Buffer
		_ = json.Compact(&state, v.State) // it is valid
		b = append(append(b, `,"state":`...), state.Bytes()...)
	}
	if v.Reason != "" {
		b = appendText(append(b, `,"reason":`...), v.Reason)
	}
	return append(b, '}')
}

// appendText appends a JSON string, as encoding/json writes it without escaping HTML.
func appendText(b []byte, text string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for at, size := 0, 0; at < len(text); at += size {
		var r rune
		r, size = utf8.DecodeRuneInString(text[at:])
		switch {
		case r == utf8.RuneError && size == 1: // no UTF-8
			b = append(b, `\ufffd`...)
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r == '\b':
			b = append(b, '\\', 'b')
		case r == '\f':
			b = append(b, '\\', 'f')
		case r < ' ' || r == '\u2028' || r == '\u2029':
			b = append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// checkDocuments checks that the documents in a verdict are valid JSON, before
// encoding/json does: in a module built with TinyGo, its errors are traps.
func checkDocuments(v Verdict) error {
	if len(v.State) != 0 && !json.Valid(v.State) {
		return fmt.Errorf("state is not JSON")
	}
	for _, i := range v.Intents {
		if i.Create != nil && !json.Valid(i.Create.Object) {
			return fmt.Errorf("the object of intent %q is not JSON", i.ID)
		}
		if i.Patch != nil && !json.Valid(i.Patch.Patch) {
			return fmt.Errorf("the patch of intent %q is not JSON", i.ID)
		}
	}
	return nil
}

// marshal encodes JSON without escaping '<', '>' and '&', so that a document that
// was parsed is encoded unchanged.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
