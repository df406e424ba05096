// Package escape makes text of which nothing is known fit for people to read: names,
// messages and whatever else comes from a cluster, a module or a server. It writes
// out what a terminal would obey, what would begin another line, and what would be
// invisible or change the order of what is around it, as kubectl does with the first
// two.
//
// It is not for what programs read: JSON and YAML have escapes of their own.
package escape

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns text that is one line, and stays where it is put. Text that is so
// already is returned as it is.
func Text(text string) string { return escaped(text, "") }

// Lines is Text for what may have several lines, and tabs.
func Lines(text string) string { return escaped(text, "\n\t") }

func escaped(text, except string) string {
	is := func(r rune) bool { return isSpecial(r) && !strings.ContainsRune(except, r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, is) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case is(r):
			write(&b, r)
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// isSpecial reports whether a character is none that is only seen.
func isSpecial(r rune) bool {
	return r < ' ' || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) ||
		unicode.Is(unicode.Variation_Selector, r) && r > 0xffff || r&0xfffe == 0xfffe || isBlank(r)
}

// isBlank reports whether a character takes up room, or none, and shows nothing,
// without being a space.
func isBlank(r rune) bool {
	switch r {
	case '\u034f', '\u115f', '\u1160', '\u17b4', '\u17b5', '\u2800', '\u3164', '\uffa0':
		return true
	}
	return false
}

// write writes a character as kubectl does, or else as JSON has it.
func write(b *strings.Builder, r rune) {
	switch r {
	case '\x1b':
		b.WriteString("^[")
	case '\n':
		b.WriteString(`\n`)
	case '\r':
		b.WriteString(`\r`)
	case '\t':
		b.WriteString(`\t`)
	default:
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(b, `\u%04x`, unit)
		}
	}
}
