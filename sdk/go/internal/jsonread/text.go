package jsonread

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Text reads a string.
func (r *Reader) Text() string {
	raw := r.Skip()
	if len(raw) < 2 || raw[0] != '"' {
		r.Failed = r.Failed || string(raw) != "null"
		return ""
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	return r.unescape(inner)
}

// unescape decodes what is between the quotes of a string. Half of a surrogate pair
// becomes U+FFFD.
func (r *Reader) unescape(inner []byte) string {
	text := make([]byte, 0, len(inner))
	for at := 0; at < len(inner); {
		if inner[at] != '\\' {
			text = append(text, inner[at])
			at++
			continue
		}
		if at++; at == len(inner) {
			r.Failed = true
			break
		}
		escaped := inner[at]
		at++
		switch escaped {
		case '"', '\\', '/':
			text = append(text, escaped)
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			char, ok := hexDigits(inner[at:])
			r.Failed = r.Failed || !ok
			at = min(at+4, len(inner))
			if utf16.IsSurrogate(char) {
				next, _ := lowSurrogate(inner[at:])
				if char = utf16.DecodeRune(char, next); char != utf8.RuneError {
					at += len(`\uDC00`)
				}
			}
			text = utf8.AppendRune(text, char)
		default:
			r.Failed = true
		}
	}
	return string(text)
}

// hexDigits reads the four digits of a \u escape.
func hexDigits(digits []byte) (rune, bool) {
	if len(digits) < 4 {
		return utf8.RuneError, false
	}
	var char rune
	for _, d := range digits[:4] {
		switch {
		case d >= '0' && d <= '9':
			d -= '0'
		case d >= 'a' && d <= 'f':
			d -= 'a' - 10
		case d >= 'A' && d <= 'F':
			d -= 'A' - 10
		default:
			return utf8.RuneError, false
		}
		char = char<<4 | rune(d)
	}
	return char, true
}

// lowSurrogate reads a \u escape, which completes a surrogate pair.
func lowSurrogate(escape []byte) (rune, bool) {
	if digits, ok := bytes.CutPrefix(escape, []byte(`\u`)); ok {
		return hexDigits(digits)
	}
	return utf8.RuneError, false
}
