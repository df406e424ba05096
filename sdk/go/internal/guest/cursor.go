package guest

import (
	"bytes"
	"encoding/json"
)

// cursor parses a document in one pass. encoding/json reads nested values several
// times, at some 800 units of fuel a byte: a page of objects would use up the fuel
// of a call. The host writes the documents, so they are valid JSON; otherwise bad
// is set, and the results are undefined.
type cursor struct {
	data   []byte
	at     int
	failed bool
}

// peek returns the next byte; 0 at the end.
func (c *cursor) peek() byte {
	for c.at < len(c.data) {
		switch b := c.data[c.at]; b {
		case ' ', '\t', '\r', '\n', ',', ':':
			c.at++
		default:
			return b
		}
	}
	c.failed = true
	return 0
}

// enter skips the opening bracket of an object or an array, and reports whether
// there is one.
func (c *cursor) enter(bracket byte) bool {
	if c.peek() != bracket {
		c.failed = true
		return false
	}
	c.at++
	return true
}

// more reports whether another field or item follows, or else skips the closing
// bracket.
func (c *cursor) more(bracket byte) bool {
	if c.peek() == bracket {
		c.at++
		return false
	}
	return !c.failed
}

// fields calls each with the name of each field of an object. each must skip the
// value.
func (c *cursor) fields(each func(name string)) {
	if !c.enter('{') {
		return
	}
	for c.more('}') {
		each(c.text())
	}
}

// text reads a string.
func (c *cursor) text() string {
	raw := c.skip()
	if len(raw) < 2 || raw[0] != '"' {
		c.failed = true
		return ""
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var text string
	c.decode(raw, &text)
	return text
}

// decode decodes a small value with encoding/json.
func (c *cursor) decode(raw []byte, into any) {
	if json.Unmarshal(raw, into) != nil {
		c.failed = true
	}
}

// skip skips a value and returns it.
func (c *cursor) skip() []byte {
	first := c.peek()
	start := c.at
	switch first {
	case '"':
		c.quoted()
	case '{', '[':
		c.brackets()
	default:
		for c.at < len(c.data) && bytes.IndexByte([]byte(" \t\r\n,]}"), c.data[c.at]) < 0 {
			c.at++
		}
	}
	if c.at > len(c.data) || c.at == start {
		c.at, c.failed = len(c.data), true
		return nil
	}
	return c.data[start:c.at]
}

// quoted skips a string.
func (c *cursor) quoted() {
	for c.at++; c.at < len(c.data); c.at++ {
		switch c.data[c.at] {
		case '"':
			c.at++
			return
		case '\\':
			c.at++
		}
	}
	c.failed = true
}

// brackets skips everything up to the matching closing bracket.
func (c *cursor) brackets() {
	for depth := 0; c.at < len(c.data); {
		switch c.data[c.at] {
		case '"':
			c.quoted()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if c.at++; depth == 0 {
			return
		}
	}
	c.failed = true
}

// rest collects fields of an object for encoding/json.
type rest struct{ json []byte }

func (r *rest) add(name string, raw []byte) {
	if len(r.json) == 0 {
		r.json = append(r.json, '{')
	} else {
		r.json = append(r.json, ',')
	}
	quoted, _ := json.Marshal(name) // never fails for a string
	r.json = append(append(append(r.json, quoted...), ':'), raw...)
}

func (r *rest) object() []byte {
	if len(r.json) == 0 {
		return []byte("{}")
	}
	return append(r.json, '}')
}
