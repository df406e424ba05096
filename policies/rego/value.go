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

// Values are passed to and from the built-ins of the host as text: JSON with sets
// and keys of any type. Their nesting and the length of numbers are limited, since
// later processing recurses, and expands exponents.
const (
	maxValueDepth   = 128
	maxNumberLength = 512 // maximum characters of a number
)

var (
	errDeep = fmt.Errorf("values are nested deeper than %d", maxValueDepth)
	errLong = fmt.Errorf("the result has more than %d bytes", maxResultBytes)
)

// reader parses one value. Its input comes from the module, and can be anything.
type reader struct {
	text  string
	pos   int
	depth int
}

func readValue(text string) (*ast.Term, error) {
	r := &reader{text: text}
	term, err := r.value()
	if err != nil {
		return nil, err
	}
	if r.pos != len(text) {
		return nil, r.unexpected()
	}
	return term, nil
}

func (r *reader) unexpected() error { return fmt.Errorf("unexpected text at byte %d", r.pos) }

// accept skips spaces, and consumes s if it comes next.
func (r *reader) accept(s string) bool {
	for r.pos < len(r.text) && r.text[r.pos] == ' ' {
		r.pos++
	}
	if !strings.HasPrefix(r.text[r.pos:], s) {
		return false
	}
	r.pos += len(s)
	return true
}

func (r *reader) value() (*ast.Term, error) {
	if r.depth++; r.depth > maxValueDepth {
		return nil, errDeep
	}
	defer func() { r.depth-- }()

	switch {
	case r.accept("null"):
		return ast.NullTerm(), nil
	case r.accept("true"):
		return ast.BooleanTerm(true), nil
	case r.accept("false"):
		return ast.BooleanTerm(false), nil
	case r.accept("set()"):
		return ast.SetTerm(), nil
	case r.accept("["):
		terms, err := r.list("]")
		return ast.ArrayTerm(terms...), err
	case r.accept("{"):
		return r.braces()
	case strings.HasPrefix(r.text[r.pos:], `"`):
		return r.string()
	default:
		return r.number()
	}
}

// list reads comma-separated values up to end.
func (r *reader) list(end string) ([]*ast.Term, error) {
	var terms []*ast.Term
	for !r.accept(end) {
		if len(terms) > 0 && !r.accept(",") {
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

// braces reads an object or a set. The first colon tells them apart.
func (r *reader) braces() (*ast.Term, error) {
	if r.accept("}") {
		return ast.ObjectTerm(), nil
	}
	first, err := r.value()
	if err != nil {
		return nil, err
	}
	if r.accept(":") {
		return r.object(first)
	}
	elems := []*ast.Term{first}
	for r.accept(",") {
		elem, err := r.value()
		if err != nil {
			return nil, err
		}
		elems = append(elems, elem)
	}
	if !r.accept("}") {
		return nil, r.unexpected()
	}
	return ast.SetTerm(elems...), nil
}

// object reads an object after the colon of the first key.
func (r *reader) object(key *ast.Term) (*ast.Term, error) {
	object := ast.NewObject()
	for {
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		object.Insert(key, value)
		if r.accept("}") {
			return ast.NewTerm(object), nil
		}
		if !r.accept(",") {
			return nil, r.unexpected()
		}
		if key, err = r.value(); err != nil {
			return nil, err
		}
		if !r.accept(":") {
			return nil, r.unexpected()
		}
	}
}

func (r *reader) string() (*ast.Term, error) {
	for end := r.pos + 1; end < len(r.text); end++ {
		switch r.text[end] {
		case '\\':
			end++
		case '"':
			quoted := r.text[r.pos : end+1]
			r.pos = end + 1
			var s string
			if err := json.Unmarshal([]byte(quoted), &s); err != nil {
				return nil, fmt.Errorf("parse string: %w", err)
			}
			return ast.StringTerm(s), nil
		}
	}
	return nil, errors.New("unterminated string")
}

func (r *reader) number() (*ast.Term, error) {
	start := r.pos
	for r.pos < len(r.text) && strings.IndexByte("+-.eE0123456789", r.text[r.pos]) >= 0 {
		r.pos++
	}
	digits := r.text[start:r.pos]
	if strings.HasPrefix(digits, ".") { // a number in the source, as written
		digits = "0" + digits
	}
	if !json.Valid([]byte(digits)) {
		r.pos = start
		return nil, r.unexpected()
	}
	if err := checkNumber(digits); err != nil {
		return nil, err
	}
	return ast.NumberTerm(json.Number(digits)), nil
}

// checkNumber rejects numbers that need more memory than their text: "1e999999999"
// as an integer has a billion digits.
func checkNumber(digits string) error {
	if len(digits) > maxNumberLength {
		return fmt.Errorf("a number has %d digits, at most %d are allowed", len(digits), maxNumberLength)
	}
	if i := strings.IndexAny(digits, "eE"); i >= 0 && len(strings.TrimLeft(digits[i+1:], "+-0")) > 3 {
		return fmt.Errorf("the exponent of %s is too large", digits)
	}
	return nil
}

// writeValue writes a value as text that the module can parse.
func writeValue(value ast.Value) ([]byte, error) {
	text, err := appendDeep(nil, value, 0)
	if len(text) > maxResultBytes {
		return nil, errLong
	}
	return text, err
}

func appendDeep(to []byte, value ast.Value, depth int) (_ []byte, err error) {
	if depth++; depth > maxValueDepth {
		return nil, errDeep
	}
	if len(to) > maxResultBytes {
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
	return nil, fmt.Errorf("the result contains a %s, which is not a value", ast.ValueName(value))
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

// appendString writes a string as JSON, since the module does not support Rego's
// other escapes. Invalid UTF-8 becomes U+FFFD.
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
