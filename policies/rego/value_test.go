package rego

import (
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

func TestReadValue_RoundTrips(t *testing.T) {
	for text, want := range map[string]string{
		`null`:                       `null`,
		`true`:                       `true`,
		`-1.50e+10`:                  `-1.50e+10`,
		`"a\"\\\u0000\ud83d\ude00é"`: `"a\"\\\u0000😀é"`,
		`[]`:                         `[]`,
		`[1, [2], "x"]`:              `[1,[2],"x"]`,
		`{}`:                         `{}`,
		`{"b": 1, "a": {"c": null}}`: `{"a":{"c":null},"b":1}`,
		`set()`:                      `set()`,
		`{3, 1, 2}`:                  `{1,2,3}`,
		`{[1]: {2: 3}, {4}: set()}`:  `{[1]:{2:3},{4}:set()}`,
		`{"one"}`:                    `{"one"}`,
	} {
		term, err := readValue(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := writeValue(term.Value)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestReadValue_RejectsInvalid(t *testing.T) {
	for _, text := range []string{
		``, ` `, `[`, `[1`, `[1,`, `[1 2]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{1,`, `"`, `"\`, `"\x"`, `01`, `+1`, `1 2`,
		`nul`, `set(`, `1e`, `1e9999`, strings.Repeat("9", 600), strings.Repeat("[", 1_000_000), strings.Repeat("{", 1_000_000),
		strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200),
	} {
		if term, err := readValue(text); err == nil {
			t.Errorf("%.40q was read as %.40v", text, term)
		}
	}
}

func TestWriteValue_BoundsResult(t *testing.T) {
	deep := ast.NullTerm()
	for range 200 {
		deep = ast.ArrayTerm(deep)
	}
	wide := ast.ArrayTerm()
	for range 3 {
		wide = ast.ArrayTerm(wide, ast.StringTerm(strings.Repeat("x", 500_000)))
	}
	for _, value := range []ast.Value{deep.Value, wide.Value, ast.MustParseRef("a.b"), ast.Var("x")} {
		if text, err := writeValue(value); err == nil {
			t.Errorf("an answer of %d bytes was written", len(text))
		}
	}
}

// FuzzValue: what is read can be written, and comes to the same when read again.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{`{"a": [1, 2.5, "x\u0001"]}`, `{1, {2: set()}}`, `[null, true`, `"\ud800"`, `{"a": 1, "a": 2}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		term, err := readValue(text)
		if err != nil {
			return
		}
		written, err := writeValue(term.Value)
		if err != nil {
			t.Fatalf("write %v: %v", term, err)
		}
		again, err := readValue(string(written))
		if err != nil {
			t.Fatalf("read %s again: %v", written, err)
		}
		if term.Value.Compare(again.Value) != 0 {
			t.Fatalf("%v became %v", term, again)
		}
	})
}
