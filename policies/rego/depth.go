package rego

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of nesting. OPA's parser recurses for each bracket and keeps what it has
// read so far (1.6 GiB for 15,000 of them), and its compiler takes four times as
// long for each nested template string: 3 s at 12 levels. Real policies have fewer
// than 20 nested brackets.
const (
	maxBrackets  = 100
	maxTemplates = 3
)

// nesting tracks the brackets of a text as OPA's scanner does, before it is parsed.
type nesting struct {
	file string
	text string
	at   int
	line int

	open      []byte // open brackets; for a template string, its quote, followed by the brace in it
	templates int    // number of template strings in open
}

// checkNesting rejects a text that is nested too deeply to be parsed.
func checkNesting(f File) error {
	n := &nesting{file: f.Name, text: f.Text, line: 1}
	for n.at < len(n.text) {
		n.code()
		if len(n.open)-n.templates > maxBrackets {
			return n.refuse("brackets are nested deeper than %d", maxBrackets)
		}
		if n.templates > maxTemplates {
			return n.refuse("template strings are nested deeper than %d: move the inner ones to rules", maxTemplates)
		}
	}
	return nil
}

func (n *nesting) refuse(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf("%s:%d: ", n.file, n.line) + fmt.Sprintf(format, args...)}
}

// next consumes a character; 0 is the end.
func (n *nesting) next() rune {
	if n.at >= len(n.text) {
		return 0
	}
	c, size := utf8.DecodeRuneInString(n.text[n.at:])
	n.at += size
	if c == '\n' {
		n.line++
	}
	return c
}

// code consumes the next token outside of strings.
func (n *nesting) code() {
	switch c := n.next(); c {
	case '#':
		for n.at < len(n.text) && n.next() != '\n' {
		}
	case '"':
		n.quoted(false)
	case '`':
		if end := strings.IndexByte(n.text[n.at:], '`'); end >= 0 {
			n.line += strings.Count(n.text[n.at:n.at+end], "\n")
			n.at += end + 1
		} else {
			n.at = len(n.text)
		}
	case '$':
		if quote := n.next(); quote == '"' || quote == '`' {
			n.template(byte(quote))
		}
	case '(', '[', '{':
		n.open = append(n.open, byte(c))
	case ')', ']', '}':
		n.close()
	}
}

// close closes the innermost bracket. If it was one in a template string, the
// string continues.
func (n *nesting) close() {
	last := len(n.open) - 1
	if last < 0 {
		return // the parser will report it
	}
	n.open = n.open[:last]
	if last == 0 {
		return
	}
	if quote := n.open[last-1]; quote == '"' || quote == '`' {
		n.open = n.open[:last-1]
		n.templates--
		n.template(quote)
	}
}

// template consumes a template string up to its end, or to an expression.
func (n *nesting) template(quote byte) {
	expression := false
	if quote == '"' {
		expression = n.quoted(true)
	} else {
		expression = n.raw()
	}
	if expression {
		n.open = append(n.open, quote, '{')
		n.templates++
	}
}

// quoted consumes the rest of a string, or of a template up to an expression. A
// newline ends both.
func (n *nesting) quoted(template bool) (expression bool) {
	for n.at < len(n.text) {
		switch c := n.next(); c {
		case '"', '\n':
			return false
		case '{':
			if template {
				return true
			}
		case '\\':
			if n.next() != 'u' {
				continue
			}
			for range 4 {
				n.next()
			}
		}
	}
	return false
}

// raw consumes the rest of a raw template string, or up to an expression.
func (n *nesting) raw() (expression bool) {
	for n.at < len(n.text) {
		switch n.next() {
		case '`':
			return false
		case '{':
			return true
		case '\\':
			if strings.HasPrefix(n.text[n.at:], "{") {
				n.at++
			}
		}
	}
	return false
}
