package hostabi

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// check looks in what is known to be JSON for what encoding/json lets pass:
// fields that are there twice, and characters that are none.
func check(document []byte) *VerdictError {
	c := checker{walker: walker{data: document}}
	c.value(nil)
	return c.err
}

type checker struct {
	walker
	err *VerdictError // the first
}

// value checks the value that begins here. Its path is on the stack, and so
// costs nothing where all is well.
func (c *checker) value(at *path) {
	switch kindOf(c.data[c.at]) {
	case kindObject:
		c.object(at)
	case kindArray:
		here := path{parent: at, isItem: true}
		for c.enter(); !c.leave(); c.comma() {
			c.value(&here)
			here.index++
		}
	case kindString:
		c.text(at)
	default:
		c.skip()
	}
}

func (c *checker) object(at *path) {
	var names names
	for c.enter(); !c.leave(); c.comma() {
		here := path{parent: at, name: c.text(at)}
		if !names.add(here.name) {
			c.fail(&here, "is there twice: write each field once")
		}
		c.pass()
		c.value(&here)
	}
}

// text reads a string. Half a surrogate pair is no character, and would quietly
// become another.
func (c *checker) text(at *path) string {
	raw := c.skip().raw
	text := unquote(raw)
	if strings.ContainsRune(text, utf8.RuneError) && halfSurrogate(raw) {
		c.fail(at, "has half a surrogate pair in a string: write the character itself, in UTF-8")
	}
	return text
}

func (c *checker) fail(at *path, message string) {
	if c.err == nil {
		c.err = errorAt(at, "%s", message)
	}
}

// names are those of an object's fields. Most objects have few, and need no map.
type names struct {
	few  []string
	many map[string]bool
}

// add takes up a name; false if it is there.
func (n *names) add(name string) bool {
	const few = 8
	if contains(n.few, name) || n.many[name] {
		return false
	}
	switch {
	case len(n.few) < few:
		n.few = append(n.few, name)
	case n.many == nil:
		n.many = map[string]bool{name: true}
	default:
		n.many[name] = true
	}
	return true
}

// halfSurrogate tells whether a quoted string has one. A string with
// U+FFFD of its own has none.
func halfSurrogate(raw []byte) bool {
	own := bytes.Count(raw, []byte("\uFFFD")) + countEscape(raw, "fffd")
	var text string
	_ = json.Unmarshal(raw, &text) // it was read before
	return strings.Count(text, "\uFFFD") > own
}

// countEscape counts \u escapes with these digits.
func countEscape(raw []byte, digits string) int {
	n := 0
	for i := 0; i+5 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if raw[i+1] == 'u' && strings.EqualFold(string(raw[i+2:i+6]), digits) {
			n++
		}
		i++
	}
	return n
}
