package rego

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Values cross the wall to a built-in of the host, and back, as text: JSON, to
// which sets and keys of any type are added. Objects nest no deeper than this on
// the way, and numbers have no more digits: what reads them next recurses, and
// writes out exponents.
const (
	deepest = 128
	longest = 512 // characters of a number
)

var (
	errDeep = fmt.Errorf("values may be nested at most %d deep", deepest)
	errLong = fmt.Errorf("the answer has more than %d bytes", mostBytes)
)

// reader reads one value. What it reads was written by the module, which may
// have been made to write anything.
type reader struct {
	text  string
	at    int
	depth int
}

func readValue(text string) (*ast.Term, error) {
	r := &reader{text: text}
	term, err := r.value()
	if err != nil {
		return nil, err
	}
	if r.at != len(text) {
		return nil, r.unexpected()
	}
	return term, nil
}

func (r *reader) unexpected() error { return fmt.Errorf("no value is to be read at byte %d", r.at) }

// take steps over a text if it comes next, and over the spaces before it.
func (r *reader) take(s string) bool {
	for r.at < len(r.text) && r.text[r.at] == ' ' {
		r.at++
	}
	if !strings.HasPrefix(r.text[r.at:], s) {
		return false
	}
	r.at += len(s)
	return true
}

func (r *reader) value() (*ast.Term, error) {
	if r.depth++; r.depth > deepest {
		return nil, errDeep
	}
	defer func() { r.depth-- }()

	switch {
	case r.take("null"):
		return ast.NullTerm(), nil
	case r.take("true"):
		return ast.BooleanTerm(true), nil
	case r.take("false"):
		return ast.BooleanTerm(false), nil
	case r.take("set()"):
		return ast.SetTerm(), nil
	case r.take("["):
		terms, err := r.list("]")
		return ast.ArrayTerm(terms...), err
	case r.take("{"):
		return r.braces()
	case strings.HasPrefix(r.text[r.at:], `"`):
		return r.string()
	default:
		return r.number()
	}
}

// list reads values up to the end, with commas between.
func (r *reader) list(end string) ([]*ast.Term, error) {
	var terms []*ast.Term
	for !r.take(end) {
		if len(terms) > 0 && !r.take(",") {
			return nil, r.unexpected()
		}
		term, err := r.value()
		if err != nil {
			return nil, err
		}
		terms = append(terms, term)
	}
	return terms, nil
}

// braces reads an object or a set, which the first colon tells apart.
func (r *reader) braces() (*ast.Term, error) {
	if r.take("}") {
		return ast.ObjectTerm(), nil
	}
	first, err := r.value()
	if err != nil {
		return nil, err
	}
	if r.take(":") {
		return r.object(first)
	}
	elems := []*ast.Term{first}
	for r.take(",") {
		elem, err := r.value()
		if err != nil {
			return nil, err
		}
		elems = append(elems, elem)
	}
	if !r.take("}") {
		return nil, r.unexpected()
	}
	return ast.SetTerm(elems...), nil
}

// object reads on after the colon behind the first key.
func (r *reader) object(key *ast.Term) (*ast.Term, error) {
	object := ast.NewObject()
	for {
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		object.Insert(key, value)
		if r.take("}") {
			return ast.NewTerm(object), nil
		}
		if !r.take(",") {
			return nil, r.unexpected()
		}
		if key, err = r.value(); err != nil {
			return nil, err
		}
		if !r.take(":") {
			return nil, r.unexpected()
		}
	}
}

func (r *reader) string() (*ast.Term, error) {
	for end := r.at + 1; end < len(r.text); end++ {
		switch r.text[end] {
		case '\\':
			end++
		case '"':
			quoted := r.text[r.at : end+1]
			r.at = end + 1
			var s string
			if err := json.Unmarshal([]byte(quoted), &s); err != nil {
				return nil, fmt.Errorf("read a string: %w", err)
			}
			return ast.StringTerm(s), nil
		}
	}
	return nil, errors.New("a string has no end")
}

func (r *reader) number() (*ast.Term, error) {
	start := r.at
	for r.at < len(r.text) && strings.IndexByte("+-.eE0123456789", r.text[r.at]) >= 0 {
		r.at++
	}
	digits := r.text[start:r.at]
	if strings.HasPrefix(digits, ".") { // a number of the source, as it was written
		digits = "0" + digits
	}
	if !json.Valid([]byte(digits)) {
		r.at = start
		return nil, r.unexpected()
	}
	if err := checkNumber(digits); err != nil {
		return nil, err
	}
	return ast.NumberTerm(json.Number(digits)), nil
}

// checkNumber allows no number that takes more room than its text: "1e999999999"
// as an integer has a billion digits.
func checkNumber(digits string) error {
	if len(digits) > longest {
		return fmt.Errorf("a number has %d digits, where at most %d are allowed", len(digits), longest)
	}
	if i := strings.IndexAny(digits, "eE"); i >= 0 && len(strings.TrimLeft(digits[i+1:], "+-0")) > 3 {
		return fmt.Errorf("the number %s has too large an exponent", digits)
	}
	return nil
}

// writeValue writes a value as the module reads it.
func writeValue(value ast.Value) ([]byte, error) {
	text, err := appendDeep(nil, value, 0)
	if len(text) > mostBytes {
		return nil, errLong
	}
	return text, err
}

func appendDeep(to []byte, value ast.Value, depth int) (_ []byte, err error) {
	if depth++; depth > deepest {
		return nil, errDeep
	}
	if len(to) > mostBytes {
		return nil, errLong
	}
	switch v := value.(type) {
	case ast.String:
		return appendString(to, string(v)), nil
	case *ast.Array:
		to = append(to, '[')
		for i := range v.Len() {
			if to, err = appendDeep(separate(to, i), v.Elem(i).Value, depth); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	case ast.Object:
		return appendObject(to, v, depth)
	case ast.Set:
		if v.Len() == 0 {
			return append(to, "set()"...), nil
		}
		to = append(to, '{')
		for i, elem := range v.Slice() {
			if to, err = appendDeep(separate(to, i), elem.Value, depth); err != nil {
				return nil, err
			}
		}
		return append(to, '}'), nil
	case ast.Null, ast.Boolean, ast.Number:
		return append(to, v.String()...), nil
	}
	return nil, fmt.Errorf("the answer has a %s in it, which is no value", ast.ValueName(value))
}

func appendObject(to []byte, object ast.Object, depth int) (_ []byte, err error) {
	to = append(to, '{')
	for i, key := range object.Keys() {
		if to, err = appendDeep(separate(to, i), key.Value, depth); err != nil {
			return nil, err
		}
		if to, err = appendDeep(append(to, ':'), object.Get(key).Value, depth); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

func separate(to []byte, i int) []byte {
	if i > 0 {
		return append(to, ',')
	}
	return to
}

// appendString writes a string as JSON, since the module knows none of the other
// escapes that Rego has. What is no UTF-8 becomes U+FFFD.
func appendString(to []byte, s string) []byte {
	const hex = "0123456789abcdef"
	to = slices.Grow(append(to, '"'), len(s)+1)
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			to = append(to, '\\', byte(c))
		case c < ' ':
			to = append(to, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			to = utf8.AppendRune(to, c)
		}
	}
	return append(to, '"')
}
