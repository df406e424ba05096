package rego

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// How deep the text may nest. OPA's parser recurses for each bracket and keeps what
// it has read so far (1.6 GiB for 15,000 of them), and its compiler takes four times
// as long for each template string within another: at 12 of them, 3 s. What people
// write stays below 20 brackets.
const (
	maxBrackets  = 100
	maxTemplates = 3
)

// nesting follows the brackets of a text as OPA's scanner reads it, before anything
// is parsed.
type nesting struct {
	file string
	text string
	at   int
	line int

	open      []byte // brackets; for a template string, its quote, below the brace in it
	templates int    // of open
}

// checkNesting refuses a text that is nested too deeply to be parsed.
func checkNesting(f File) error {
	n := &nesting{file: f.Name, text: f.Text, line: 1}
	for n.at < len(n.text) {
		n.code()
		if len(n.open)-n.templates > maxBrackets {
			return n.refuse("brackets are nested deeper than %d", maxBrackets)
		}
		if n.templates > maxTemplates {
			return n.refuse("template strings are nested deeper than %d: give the inner ones names, as rules", maxTemplates)
		}
	}
	return nil
}

func (n *nesting) refuse(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf("%s:%d: ", n.file, n.line) + fmt.Sprintf(format, args...)}
}

// next takes a character; 0 is the end.
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

// code takes what comes next outside of strings.
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

// close leaves the innermost bracket. Where that was one of a template string, the
// string goes on.
func (n *nesting) close() {
	last := len(n.open) - 1
	if last < 0 {
		return // it will not parse
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

// template takes the text of a template string up to its end, or to an expression.
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

// quoted takes the rest of a string, or, of a template, what comes before an
// expression. A line ends both.
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

// raw takes the rest of a raw template string, or what comes before an expression.
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
