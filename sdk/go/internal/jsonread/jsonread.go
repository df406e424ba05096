// Package jsonread reads JSON documents of the host in one pass and without reflection.
// encoding/json reads nested values several times, at some 800 units of fuel a byte, and
// is a quarter of a small module.
package jsonread

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
)

// Reader reads a document from its start to its end. The host writes the documents, so
// they are valid JSON; otherwise Failed may be set, and what was read is undefined. Null is
// the zero value.
type Reader struct {
	Failed bool // the document does not have the values that were read from it

	data []byte
	at   int
}

// New returns a Reader of a document. What it returns refers to data.
func New(data []byte) *Reader { return &Reader{data: data} }

// Position returns the position of the next value, in bytes from the start.
func (r *Reader) Position() int {
	r.peek()
	return r.at
}

// Since returns what was read since a position.
func (r *Reader) Since(position int) json.RawMessage { return r.data[position:r.at:r.at] }

// peek returns the next byte; 0 at the end.
func (r *Reader) peek() byte {
	for r.at < len(r.data) {
		switch b := r.data[r.at]; b {
		case ' ', '\t', '\r', '\n', ',', ':':
			r.at++
		default:
			return b
		}
	}
	r.Failed = true
	return 0
}

// enter skips the opening bracket of an object or an array, and reports whether
// there is one.
func (r *Reader) enter(bracket byte) bool {
	if r.peek() != bracket {
		r.Failed = true
		return false
	}
	r.at++
	return true
}

// more reports whether another field or item follows, or else skips the closing
// bracket.
func (r *Reader) more(bracket byte) bool {
	if r.peek() == bracket {
		r.at++
		return false
	}
	return !r.Failed
}

// null skips a null, and reports whether there is one.
func (r *Reader) null() bool {
	if r.peek() != 'n' {
		return false
	}
	r.Failed = r.Failed || string(r.Skip()) != "null"
	return true
}

// Fields calls each with the name of each field of an object. each must read or skip the
// value.
func (r *Reader) Fields(each func(name string)) {
	if r.null() || !r.enter('{') {
		return
	}
	for r.more('}') {
		each(r.Text())
	}
}

// Optional reads a value that can be null, for which it returns nil.
func Optional[T any](r *Reader, read func() T) *T {
	if r.null() {
		return nil
	}
	value := read()
	return &value
}

// List reads an array.
func List[T any](r *Reader, read func() T) []T {
	if r.null() || !r.enter('[') {
		return nil
	}
	items := []T{}
	for r.more(']') {
		items = append(items, read())
	}
	return items
}

// Map reads an object with values of one type.
func Map[T any](r *Reader, read func() T) map[string]T {
	if r.null() {
		return nil
	}
	all := map[string]T{}
	r.Fields(func(name string) { all[name] = read() })
	return all
}

// Raw reads a value without decoding it.
func (r *Reader) Raw() json.RawMessage {
	raw := r.Skip()
	return raw[:len(raw):len(raw)]
}

// Bool reads a boolean.
func (r *Reader) Bool() bool {
	switch string(r.Skip()) {
	case "true":
		return true
	case "false", "null":
	default:
		r.Failed = true
	}
	return false
}

// Int reads a whole number.
func (r *Reader) Int() int { return int(r.Int64()) }

// Int64 reads a whole number.
func (r *Reader) Int64() int64 {
	if r.null() {
		return 0
	}
	n, err := strconv.ParseInt(string(r.Skip()), 10, 64)
	r.Failed = r.Failed || err != nil
	return n
}

// Time reads a time as RFC 3339 writes it.
func (r *Reader) Time() (t time.Time) {
	if !r.null() && (r.peek() != '"' || t.UnmarshalJSON(r.Skip()) != nil) {
		r.Failed = true
	}
	return t
}

// Base64 reads bytes.
func (r *Reader) Base64() []byte {
	if r.null() {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(r.Text())
	r.Failed = r.Failed || err != nil
	return data
}

// Skip skips a value and returns it.
func (r *Reader) Skip() []byte {
	first := r.peek()
	start := r.at
	switch first {
	case '"':
		r.quoted()
	case '{', '[':
		r.brackets()
	default:
		for r.at < len(r.data) && bytes.IndexByte([]byte(" \t\r\n,]}"), r.data[r.at]) < 0 {
			r.at++
		}
	}
	if r.at > len(r.data) || r.at == start {
		r.at, r.Failed = len(r.data), true
		return nil
	}
	return r.data[start:r.at]
}

// quoted skips a string.
func (r *Reader) quoted() {
	for r.at++; r.at < len(r.data); r.at++ {
		switch r.data[r.at] {
		case '"':
			r.at++
			return
		case '\\':
			r.at++
		}
	}
	r.Failed = true
}

// brackets skips everything up to the matching closing bracket.
func (r *Reader) brackets() {
	for depth := 0; r.at < len(r.data); {
		switch r.data[r.at] {
		case '"':
			r.quoted()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if r.at++; depth == 0 {
			return
		}
	}
	r.Failed = true
}
