package guest

import (
	"bytes"
	"encoding/json"
)

// cursor goes through a document once. encoding/json goes through what is within
// other things several times, at some 800 units of fuel a byte: a page of objects would use up
// what a call may use. The host writes the documents, so they are JSON; of one
// that is not, bad is set, and nothing else is sure.
type cursor struct {
	data []byte
	at   int
	bad  bool
}

// peek is the first byte of what comes next; 0 at the end.
func (c *cursor) peek() byte {
	for c.at < len(c.data) {
		switch b := c.data[c.at]; b {
		case ' ', '\t', '\r', '\n', ',', ':':
			c.at++
		default:
			return b
		}
	}
	c.bad = true
	return 0
}

// enter goes into an object or an array; false if it is none.
func (c *cursor) enter(bracket byte) bool {
	if c.peek() != bracket {
		c.bad = true
		return false
	}
	c.at++
	return true
}

// more tells whether another field or item comes, or else leaves.
func (c *cursor) more(bracket byte) bool {
	if c.peek() == bracket {
		c.at++
		return false
	}
	return !c.bad
}

// fields calls with the name of each field of an object, in front of its value,
// which has to be gone past.
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
		c.bad = true
		return ""
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var text string
	c.decode(raw, &text)
	return text
}

// decode leaves a value that is small to encoding/json.
func (c *cursor) decode(raw []byte, into any) {
	if json.Unmarshal(raw, into) != nil {
		c.bad = true
	}
}

// skip goes past a value, and gives it.
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
		c.at, c.bad = len(c.data), true
		return nil
	}
	return c.data[start:c.at]
}

// quoted goes past a string.
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
	c.bad = true
}

// brackets goes past all up to the bracket that closes the one here.
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
	c.bad = true
}

// rest collects fields, as an object for encoding/json.
type rest struct{ json []byte }

func (r *rest) add(name string, raw []byte) {
	if len(r.json) == 0 {
		r.json = append(r.json, '{')
	} else {
		r.json = append(r.json, ',')
	}
	quoted, _ := json.Marshal(name) // a string always can be
	r.json = append(append(append(r.json, quoted...), ':'), raw...)
}

func (r *rest) object() []byte {
	if len(r.json) == 0 {
		return []byte("{}")
	}
	return append(r.json, '}')
}
