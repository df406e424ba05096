package escape

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/cli-runtime/pkg/printers"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"":      "",
		"web-0": "web-0",
		"Grüße, 日本, مرحبا 👋 a\u00a0b": "Grüße, 日本, مرحبا 👋 a\u00a0b",
		"├─ └─ │":                     "├─ └─ │",
		"\x1b[31mred\x1b[0m":          "^[[31mred^[[0m",
		"a\nb\r\nc\td\fe":             `a\nb\r\nc\td\u000ce`,
		"a\x00b\x07\x08\x7f":          `a\u0000b\u0007\u0008\u007f`,
		"\u009b31m \u0085":            `\u009b31m \u0085`,
		"a\u202eb\u2066c\u200f":       `a\u202eb\u2066c\u200f`,
		"a\u200bb\u200d\ufeff\u2060":  `a\u200bb\u200d\ufeff\u2060`,
		"a\u2028b\u2029":              `a\u2028b\u2029`,
		"\U000e0041":                  `\udb40\udc41`,
		"\xff\xc3(":                   `\xff\xc3(`,
		"\u3164\u2800":                `\u3164\u2800`,
	} {
		got := Text(text)
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if again := Text(got); again != got {
			t.Errorf("%q becomes %q, and that %q", text, got, again)
		}
	}
	if got := Lines("a\n\tb\x1b"); got != "a\n\tb^[" {
		t.Errorf("lines: %q", got)
	}
}

// Text escapes what kubectl escapes, in the same way.
func TestText_EscapesLikeKubectl(t *testing.T) {
	for _, text := range []string{"\x1b]0;title\x07", "a\rb", "\x1b[2J"} {
		want := strings.ReplaceAll(printers.EscapeTerminal(text), "\x07", `\u0007`)
		if got := Text(text); got != want {
			t.Errorf("%q: got %q, and kubectl has %q", text, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[0m\n\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := Text(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || strings.ContainsFunc(got, func(r rune) bool { return unicode.Is(unicode.Cf, r) }) {
			t.Errorf("%q becomes %q", text, got)
		}
		// JSON strings contain no raw control characters, so their meaning does not change.
		data, err := json.Marshal(strings.ToValidUTF8(text, "?"))
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal([]byte(Lines(string(data))), &back); err != nil || back != strings.ToValidUTF8(text, "?") {
			t.Errorf("%s: %q, %v", data, back, err)
		}
	})
}
