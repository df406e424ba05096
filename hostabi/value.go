package hostabi

import (
	"encoding/json"
	"strings"
)

// kind is what sort of JSON a value is.
type kind byte

const (
	kindObject kind = iota
	kindArray
	kindString
	kindNumber
	kindBool
	kindNull
)

// String is as messages have it.
func (k kind) String() string {
	return [...]string{"an object", "an array", "a string", "a number", "a boolean", "null"}[k]
}

// kindOf tells the kind from the first byte.
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

// value is a JSON value that has been checked. What is in it is looked at when
// it is asked for: a large document that is only passed on costs no more than
// its bytes.
type value struct {
	kind kind
	raw  []byte
}

type field struct {
	name  string
	value value
}

// text is what a string says; of any other value it is empty.
func (v value) text() string {
	if v.kind != kindString {
		return ""
	}
	return unquote(v.raw)
}

// fields are those of an object; any other value has none.
func (v value) fields() []field {
	if v.kind != kindObject {
		return nil
	}
	var fields []field
	w := walker{data: v.raw}
	for w.enter(); !w.leave(); w.comma() {
		name := unquote(w.skip().raw)
		w.pass()
		fields = append(fields, field{name, w.skip()})
	}
	return fields
}

// items are those of an array, up to a number of them; any other value has none.
func (v value) items(most int) []value {
	if v.kind != kindArray {
		return nil
	}
	var items []value
	w := walker{data: v.raw}
	for w.enter(); len(items) < most && !w.leave(); w.comma() {
		items = append(items, w.skip())
	}
	return items
}

// unquote reads a string that is known to be one.
func unquote(raw []byte) string {
	if inner := raw[1 : len(raw)-1]; !hasEscape(inner) {
		return string(inner)
	}
	var text string
	_ = json.Unmarshal(raw, &text) // it was read before
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

// walker goes along what is known to be JSON.
type walker struct {
	data []byte
	at   int
}

func (w *walker) space() {
	for w.at < len(w.data) && strings.IndexByte(" \t\r\n", w.data[w.at]) >= 0 {
		w.at++
	}
}

// pass goes past a bracket, comma or colon, and the space around it.
func (w *walker) pass() {
	w.space()
	w.at++
	w.space()
}

// enter goes into an object or an array.
func (w *walker) enter() { w.pass() }

// leave goes past the closing bracket, if that is what comes.
func (w *walker) leave() bool {
	if c := w.data[w.at]; c != '}' && c != ']' {
		return false
	}
	w.at++
	return true
}

// comma goes past a comma, if there is one.
func (w *walker) comma() {
	w.space()
	if w.data[w.at] == ',' {
		w.pass()
	}
}

// skip goes past a value, and gives it.
func (w *walker) skip() value {
	start := w.at
	switch k := kindOf(w.data[start]); k {
	case kindString:
		w.string()
	case kindObject, kindArray:
		w.brackets()
	default:
		for w.at < len(w.data) && strings.IndexByte(" \t\r\n,]}", w.data[w.at]) < 0 {
			w.at++
		}
	}
	return value{kindOf(w.data[start]), w.data[start:w.at]}
}

func (w *walker) string() {
	for w.at++; w.data[w.at] != '"'; w.at++ {
		if w.data[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
}

// brackets goes past all up to the bracket that closes the one here.
func (w *walker) brackets() {
	for depth := 0; ; {
		switch w.data[w.at] {
		case '"':
			w.string()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if w.at++; depth == 0 {
			return
		}
	}
}
