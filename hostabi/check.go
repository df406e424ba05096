package hostabi

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// checkDocument finds what encoding/json accepts and a verdict must not have: duplicate
// fields and unpaired surrogates. The document is valid JSON.
func checkDocument(document []byte) *VerdictError {
	c := checker{walker: walker{data: document}}
	c.value(nil)
	return c.err
}

type checker struct {
	walker
	err *VerdictError // the first error
}

// value checks the value at the current position. Its path is on the stack, so that
// a valid document allocates nothing for it.
func (c *checker) value(at *path) {
	switch kindOf(c.data[c.pos]) {
	case kindObject:
		c.object(at)
	case kindArray:
		here := path{parent: at, isItem: true}
		for c.open(); !c.close(); c.skipComma() {
			c.value(&here)
			here.index++
		}
	case kindString:
		c.text(at)
	default:
		c.next()
	}
}

func (c *checker) object(at *path) {
	var names names
	for c.open(); !c.close(); c.skipComma() {
		here := path{parent: at, name: c.text(at)}
		if !names.add(here.name) {
			c.fail(&here, "is duplicated: write each field once")
		}
		c.skipDelimiter()
		c.value(&here)
	}
}

// text reads a string. encoding/json replaces an unpaired surrogate silently.
func (c *checker) text(at *path) string {
	raw := c.next().raw
	text := unquote(raw)
	if strings.ContainsRune(text, utf8.RuneError) && hasUnpairedSurrogate(raw) {
		c.fail(at, "contains an unpaired surrogate: write the character in UTF-8")
	}
	return text
}

func (c *checker) fail(at *path, message string) {
	if c.err == nil {
		c.err = errorAt(at, "%s", message)
	}
}

// names are the names of an object's fields. Most objects have few, and need no
// map.
type names struct {
	slice []string
	set   map[string]bool
}

// add adds a name, and reports whether it is new.
func (n *names) add(name string) bool {
	const maxSlice = 8
	if contains(n.slice, name) || n.set[name] {
		return false
	}
	switch {
	case len(n.slice) < maxSlice:
		n.slice = append(n.slice, name)
	case n.set == nil:
		n.set = map[string]bool{name: true}
	default:
		n.set[name] = true
	}
	return true
}

// hasUnpairedSurrogate reports whether a quoted string has an unpaired surrogate. U+FFFD
// itself is not one.
func hasUnpairedSurrogate(raw []byte) bool {
	literal := bytes.Count(raw, []byte("\uFFFD")) + countEscape(raw, "fffd")
	var text string
	_ = json.Unmarshal(raw, &text) // not an error: raw is valid JSON
	return strings.Count(text, "\uFFFD") > literal
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
