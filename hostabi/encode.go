package hostabi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// encoder writes JSON as encoding/json does without escaping '<', '>' and '&', so that a
// document that was parsed is encoded unchanged. It uses no reflection, which takes
// longer than the rest of a small module, and doubles the module's size.
type encoder struct {
	b   []byte
	err error // the first error
}

func (e *encoder) fail(err error) {
	if err != nil && e.err == nil {
		e.err = err
	}
}

func (e *encoder) open()      { e.b = append(e.b, '{') }
func (e *encoder) close()     { e.b = append(e.b, '}') }
func (e *encoder) openList()  { e.b = append(e.b, '[') }
func (e *encoder) closeList() { e.b = append(e.b, ']') }

// next writes the comma before the next field or item, if it is not the first.
func (e *encoder) next() {
	if last := e.b[len(e.b)-1]; last != '{' && last != '[' {
		e.b = append(e.b, ',')
	}
}

// name writes the name of the next field, which needs no escapes.
func (e *encoder) name(name string) {
	e.next()
	e.b = append(e.b, '"')
	e.b = append(e.b, name...)
	e.b = append(e.b, '"', ':')
}

// text writes a field with a string.
func (e *encoder) text(name, value string) {
	e.name(name)
	e.string(value)
}

// optionalText writes a field with a string, unless it is empty.
func (e *encoder) optionalText(name, value string) {
	if value != "" {
		e.text(name, value)
	}
}

func (e *encoder) int(name string, value int64) {
	e.name(name)
	e.b = strconv.AppendInt(e.b, value, 10)
}

func (e *encoder) bool(name string, value bool) {
	e.name(name)
	e.b = strconv.AppendBool(e.b, value)
}

func (e *encoder) optionalBool(name string, value *bool) {
	if value != nil {
		e.bool(name, *value)
	}
}

func (e *encoder) time(name string, value time.Time) {
	e.name(name)
	text, err := value.MarshalJSON()
	e.fail(err)
	e.b = append(e.b, text...)
}

func (e *encoder) optionalTime(name string, value *time.Time) {
	if value != nil {
		e.time(name, *value)
	}
}

// document writes a field with JSON, without spaces.
func (e *encoder) document(name string, value json.RawMessage) {
	e.name(name)
	e.json(value)
}

func (e *encoder) optionalDocument(name string, value json.RawMessage) {
	if len(value) != 0 {
		e.document(name, value)
	}
}

func (e *encoder) json(value []byte) {
	if len(value) == 0 {
		e.b = append(e.b, "null"...)
		return
	}
	to := bytes.NewBuffer(e.b)
	if err := json.Compact(to, value); err != nil {
		e.fail(err)
		return
	}
	e.b = to.Bytes()
}

// optionalTexts writes a field with strings, unless there are none.
func (e *encoder) optionalTexts(name string, values []string) {
	if len(values) != 0 {
		e.texts(name, values)
	}
}

func (e *encoder) texts(name string, values []string) {
	e.name(name)
	e.openList()
	for _, v := range values {
		e.next()
		e.string(v)
	}
	e.closeList()
}

// optionalMap writes a field with strings by key, unless there are none.
func (e *encoder) optionalMap(name string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	e.name(name)
	e.open()
	for _, key := range sortedKeys(values) {
		e.next()
		e.string(key)
		e.b = append(e.b, ':')
		e.string(values[key])
	}
	e.close()
}

func (e *encoder) optionalBase64(name string, data []byte) {
	if len(data) != 0 {
		e.text(name, base64.StdEncoding.EncodeToString(data))
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (e *encoder) string(text string) { e.b = AppendString(e.b, text) }

// AppendString appends a text as a JSON string, and returns the extended slice. What is not
// UTF-8 becomes U+FFFD.
func AppendString(b []byte, text string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	written := 0
	for at := 0; at < len(text); {
		c := text[at]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			at++
			continue
		}
		r, size := utf8.DecodeRuneInString(text[at:])
		if c >= utf8.RuneSelf && r != '\u2028' && r != '\u2029' && (r != utf8.RuneError || size > 1) {
			at += size
			continue
		}
		b = append(b, text[written:at]...)
		at += size
		written = at
		switch r {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		default:
			b = append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
		}
	}
	return append(append(b, text[written:]...), '"')
}
