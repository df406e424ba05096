package hostabi

import (
	"encoding/json"
	"strings"
)

// kind is the kind of a JSON value.
type kind byte

const (
	kindObject kind = iota
	kindArray
	kindString
	kindNumber
	kindBool
	kindNull
)

// String formats the kind for messages.
func (k kind) String() string {
	return [...]string{"an object", "an array", "a string", "a number", "a boolean", "null"}[k]
}

// kindOf returns the kind of a value that starts with this byte.
func kindOf(first byte) kind {
	switch first {
	case '{':
		return kindObject
	case '[':
		return kindArray
	case '"':
		return kindString
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	default:
		return kindNumber
	}
}

// value is a valid JSON value. Its contents are decoded on demand, so that a large
// document that is only passed on costs no more than its bytes.
type value struct {
	kind kind
	raw  []byte
}

type field struct {
	name  string
	value value
}

// text returns the text of a string, or "" for other kinds.
func (v value) text() string {
	if v.kind != kindString {
		return ""
	}
	return unquote(v.raw)
}

// fields returns the fields of an object, or nil for other kinds.
func (v value) fields() []field {
	if v.kind != kindObject {
		return nil
	}
	var fields []field
	w := walker{data: v.raw}
	for w.open(); !w.close(); w.skipComma() {
		name := unquote(w.next().raw)
		w.skipDelimiter()
		fields = append(fields, field{name, w.next()})
	}
	return fields
}

// items returns the first items of an array, or nil for other kinds.
func (v value) items(limit int) []value {
	if v.kind != kindArray {
		return nil
	}
	var items []value
	w := walker{data: v.raw}
	for w.open(); len(items) < limit && !w.close(); w.skipComma() {
		items = append(items, w.next())
	}
	return items
}

// unquote decodes a valid JSON string.
func unquote(raw []byte) string {
	if inner := raw[1 : len(raw)-1]; !hasEscape(inner) {
		return string(inner)
	}
	var text string
	_ = json.Unmarshal(raw, &text) // not an error: raw is valid JSON
	return text
}

func hasEscape(raw []byte) bool {
	for _, c := range raw {
		if c == '\\' {
			return true
		}
	}
	return false
}

// walker moves through valid JSON.
type walker struct {
	data []byte
	pos  int
}

func (w *walker) skipSpace() {
	for w.pos < len(w.data) && strings.IndexByte(" \t\r\n", w.data[w.pos]) >= 0 {
		w.pos++
	}
}

// skipDelimiter skips a bracket, comma or colon, and the space around it.
func (w *walker) skipDelimiter() {
	w.skipSpace()
	w.pos++
	w.skipSpace()
}

// open skips the opening bracket of an object or array.
func (w *walker) open() { w.skipDelimiter() }

// close skips a closing bracket, and reports whether there was one.
func (w *walker) close() bool {
	if c := w.data[w.pos]; c != '}' && c != ']' {
		return false
	}
	w.pos++
	return true
}

// skipComma skips a comma, if there is one.
func (w *walker) skipComma() {
	w.skipSpace()
	if w.data[w.pos] == ',' {
		w.skipDelimiter()
	}
}

// next skips a value and returns it.
func (w *walker) next() value {
	start := w.pos
	switch k := kindOf(w.data[start]); k {
	case kindString:
		w.skipString()
	case kindObject, kindArray:
		w.skipBrackets()
	default:
		for w.pos < len(w.data) && strings.IndexByte(" \t\r\n,]}", w.data[w.pos]) < 0 {
			w.pos++
		}
	}
	return value{kindOf(w.data[start]), w.data[start:w.pos]}
}

func (w *walker) skipString() {
	for w.pos++; w.data[w.pos] != '"'; w.pos++ {
		if w.data[w.pos] == '\\' {
			w.pos++
		}
	}
	w.pos++
}

// skipBrackets skips everything up to the matching closing bracket.
func (w *walker) skipBrackets() {
	for depth := 0; ; {
		switch w.data[w.pos] {
		case '"':
			w.skipString()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if w.pos++; depth == 0 {
			return
		}
	}
}
