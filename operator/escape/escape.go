// Package escape makes untrusted text safe to print: names, messages and other text from a
// cluster, a module or a server. It escapes terminal control sequences and line breaks, as
// kubectl does, and characters that are invisible or change the order of others.
//
// It is not for machine-readable output: JSON and YAML have their own escapes.
package escape

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns the text as a single safe line. Safe text is returned unchanged.
func Text(text string) string { return escape(text, "") }

// Lines is like Text, but preserves line breaks and tabs.
func Lines(text string) string { return escape(text, "\n\t") }

func escape(text, except string) string {
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
			writeEscaped(&b, r)
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

// isSpecial reports whether a character must be escaped.
func isSpecial(r rune) bool {
	return r < ' ' || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) ||
		unicode.Is(unicode.Variation_Selector, r) && r > 0xffff || r&0xfffe == 0xfffe || isBlank(r)
}

// isBlank reports whether a character is invisible without being a space.
func isBlank(r rune) bool {
	switch r {
	case '\u034f', '\u115f', '\u1160', '\u17b4', '\u17b5', '\u2800', '\u3164', '\uffa0':
		return true
	}
	return false
}

// writeEscaped writes an escaped character like kubectl, or else like JSON.
func writeEscaped(b *strings.Builder, r rune) {
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
