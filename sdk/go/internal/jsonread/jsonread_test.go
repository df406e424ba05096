package jsonread_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/gleaner-dev/gleaner/sdk/go/internal/jsonread"
)

func TestText_DecodesEscapes(t *testing.T) {
	for _, text := range []string{
		`"\"\\\/\b\f\n\r\t"`, `"\u00e4\u00C4"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"a\u0000b"`,
	} {
		var want string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		r := jsonread.New([]byte(text))
		if got := r.Text(); got != want || r.Failed {
			t.Errorf("%s is %q, failed %v, and not %q", text, got, r.Failed, want)
		}
	}
	for _, text := range []string{`"\x"`, `"\u12"`, `"\u12g4"`, `"\`, `"a`, `1`} {
		r := jsonread.New([]byte(text))
		if got := r.Text(); !r.Failed {
			t.Errorf("%s is the string %q", text, got)
		}
	}
}

// FuzzReader sees that nothing panics, since a module has no recover, and that a value which
// is JSON is read as encoding/json reads it.
func FuzzReader(f *testing.F) {
	f.Add(`"a\ud83d\ude00"`)
	f.Add(`{"a": [1, {"b": null}], "c": "\u0041"}`)
	f.Fuzz(func(t *testing.T, document string) {
		r := jsonread.New([]byte(document))
		_ = jsonread.Map(r, func() []int64 { return jsonread.List(r, r.Int64) })
		r = jsonread.New([]byte(document))
		got := r.Text()
		var want string
		if json.Unmarshal([]byte(document), &want) == nil && utf8.ValidString(document) && (got != want || r.Failed) {
			t.Errorf("%q is %q, and not %q", document, got, want)
		}
	})
}
