// Package printertest tests that output is safe for terminals.
package printertest

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// Hostile is a name, a message or a reason that would be more than that: it begins a
// row of its own, moves the cursor, and hides what is behind it.
const Hostile = "evil\nFORGED   row\r\x1b[2K\x1b]0;title\x07\u009b31m\u202e\u200b%%{init: {}}%%\"]<script>`\x00\v\f"

// CheckHarmless makes sure that text for people holds nothing else.
func CheckHarmless(t *testing.T, what, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimLeft(line, " │├└─"), "FORGED") {
			t.Errorf("%s: a forged row: %q", what, line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }) {
			t.Errorf("%s: more than text: %q", what, line)
		}
	}
}

// fill writes the hostile text into whatever can hold it.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(Hostile)
		}
	case reflect.Pointer:
		if v.CanSet() && depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if v.CanSet() && depth > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range v.Len() {
				fill(v.Index(i), depth-1)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth)
		}
	default: // nothing with a text in it
	}
}

// Filled returns a value whose strings are all Hostile.
func Filled[T any]() T {
	var value T
	fill(reflect.ValueOf(&value).Elem(), 6)
	return value
}

// CheckReport checks that a report, which contains Hostile, is safe for terminals.
func CheckReport(t *testing.T, write func(out io.Writer) error) {
	t.Helper()
	var out bytes.Buffer
	if err := write(printer.Guard(&out)); err != nil && !errors.As(err, &exit.Error{}) {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "evil") {
		t.Errorf("the report does not contain it:\n%s", out.String())
	}
	CheckHarmless(t, t.Name(), out.String())
}
