package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// The documents of S3 are read with what little they need: encoding/xml would be
// half of the module. A key is text without markup, since "<" is written as &lt;
// in it, so elements can be found by their tags.

// version is an object, or one version of it.
type version struct{ key, id string }

// listed reads a list. An element that is cut off does not count.
func listed(document string) []version {
	var all []version
	for _, name := range []string{"Version", "DeleteMarker", "Contents"} {
		for _, e := range elements(document, name) {
			all = append(all, version{text(e, "Key"), text(e, "VersionId")})
		}
	}
	return all
}

// deletion asks to delete versions, and to be told only what went wrong.
func deletion(versions []version) string {
	var b strings.Builder
	b.WriteString("<Delete><Quiet>true</Quiet>")
	for _, v := range versions {
		b.WriteString("<Object><Key>" + escaped(v.key) + "</Key>")
		if v.id != "" {
			b.WriteString("<VersionId>" + escaped(v.id) + "</VersionId>")
		}
		b.WriteString("</Object>")
	}
	b.WriteString("</Delete>")
	return b.String()
}

// refused is the first object that was not deleted, and why.
func refused(document string) (string, bool) {
	for _, e := range elements(document, "Error") {
		return text(e, "Key") + ": " + text(e, "Code") + ": " + text(e, "Message"), true
	}
	return "", false
}

// checksum is what a request to delete several objects has to have.
func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// elements are the contents of all elements of a name.
func elements(document, name string) []string {
	opening, closing := "<"+name+">", "</"+name+">"
	var found []string
	for {
		_, rest, ok := strings.Cut(document, opening)
		if !ok {
			return found
		}
		content, after, ok := strings.Cut(rest, closing)
		if !ok {
			return found
		}
		found = append(found, content)
		document = after
	}
}

// text is that of the first element of a name; "" without one.
func text(document, name string) string {
	for _, e := range elements(document, name) {
		return unescaped(e)
	}
	return ""
}

// escaped writes what XML would read as markup, or as another character, as a
// reference.
func escaped(text string) string {
	if !strings.ContainsFunc(text, isMarkup) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if isMarkup(r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isMarkup(r rune) bool {
	return r < ' ' || r == '&' || r == '<' || r == '>' || r == '"' || r == '\''
}

var entities = map[string]string{"amp": "&", "lt": "<", "gt": ">", "quot": `"`, "apos": "'"}

// unescaped reads references.
func unescaped(text string) string {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "&")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, after, ok := strings.Cut(rest, ";")
		expected, known := reference(name)
		if !ok || !known {
			b.WriteByte('&') // no reference: it stands for itself
			text = rest
			continue
		}
		b.WriteString(expected)
		text = after
	}
}

// reference is what one of XML's references means: by name, or by number.
func reference(name string) (string, bool) {
	number, numbered := strings.CutPrefix(name, "#")
	if !numbered {
		expected, known := entities[name]
		return expected, known
	}
	base := 10
	if hex, ok := strings.CutPrefix(number, "x"); ok {
		number, base = hex, 16
	}
	code, err := strconv.ParseInt(number, base, 32)
	return string(rune(code)), err == nil
}
