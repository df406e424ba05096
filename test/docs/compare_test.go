package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mismatch returns the first wanted line that is missing, and whether
// there is one. In a line … matches any text, and a line with only … any
// number of lines. The number of spaces does not matter, since the width of columns
// depends on their content.
func mismatch(want, have []string) (string, bool) {
	want, have = normalize(want), normalize(have)
	if matches(want, have) {
		return "", false
	}
	for n := range want { // find the shortest prefix that does not match
		if !matches(append(want[:n+1:n+1], "…"), have) {
			return want[n], true
		}
	}
	return "the end of the output", true
}

func matches(want, have []string) bool {
	switch {
	case len(want) == 0:
		return len(have) == 0
	case want[0] == "…":
		return matches(want[1:], have) || len(have) != 0 && matches(want, have[1:])
	default:
		return len(have) != 0 && lineMatches(want[0], have[0]) && matches(want[1:], have[1:])
	}
}

func lineMatches(want, have string) bool {
	parts := strings.Split(want, "…")
	if len(parts) == 1 {
		return want == have
	}
	if !strings.HasPrefix(have, parts[0]) {
		return false
	}
	have = have[len(parts[0]):]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(have, part)
		if at < 0 {
			return false
		}
		have = have[at+len(part):]
	}
	return strings.HasSuffix(have, parts[len(parts)-1])
}

// normalize collapses spaces, and drops empty lines.
func normalize(lines []string) []string {
	var list []string
	for _, l := range lines {
		if words := strings.Fields(l); len(words) != 0 {
			list = append(list, strings.Join(words, " "))
		}
	}
	return list
}

func TestMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		want, have, missing string
	}{
		"the same":                            {"a\nb", "a\nb", ""},
		"other widths of columns":             {"NAME   AGE\na   …", "NAME        AGE\na           3s", ""},
		"any text in a line":                  {"a … c", "a b b c", ""},
		"any lines":                           {"a\n…\nc", "a\nb\nb\nc", ""},
		"no lines":                            {"a\n…\nc", "a\nc", ""},
		"an additional empty line":            {"a\nc", "a\n\nc", ""},
		"another line":                        {"a\nb", "a\nc", "b"},
		"a missing line":                      {"a\nb", "a", "b"},
		"an additional line":                  {"a", "a\nb", "the end of the output"},
		"a different end of a line":           {"a … c", "a b", "a … c"},
		"text that occurs once, wanted twice": {"a…b…b", "axb", "a…b…b"},
	} {
		t.Run(name, func(t *testing.T) {
			missing, is := mismatch(strings.Split(c.want, "\n"), strings.Split(c.have, "\n"))
			if is != (c.missing != "") || missing != c.missing {
				t.Errorf("got %q, %t, want %q", missing, is, c.missing)
			}
		})
	}
}

func TestDocument_BlocksAreParsed(t *testing.T) {
	d := parseDocument("a.md", []byte("```sh\nmake demo\n```\n\n"+
		"```sh\nmake build\nbin/gleaner-dev dev\n```\n\n```console\n$ cat <<END\n> text\n> END\ntext\n$ true\n```\n\n```yaml\na: b\n```\n\n"+
		"```\nNAME   AGE\n```\n"))
	got, err := d.blocks()
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{line: 2, first: "make demo", commands: []command{{line: 2, text: "make demo"}}},
		{line: 6, first: "make build", commands: []command{{line: 6, text: "make build"}, {line: 7, text: "bin/gleaner-dev dev"}}},
		{line: 11, first: "$ cat <<END", commands: []command{
			{line: 11, text: "cat <<END\ntext\nEND", checked: true, want: []string{"text"}},
			{line: 15, text: "true", checked: true},
		}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(block{}, command{})); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	for _, wrong := range []string{
		"```bash\ntrue\n```\n", "```console\ntrue\n```\n", "```\nkubectl get pods\n```\n", "```\ntext\n$ gleaner doctor\n```\n",
		"```text\nmake build\n```\n", "text\n\n    gleaner doctor\n", "1. text\n\n   ```\n   gleaner doctor\n   ```\n",
	} {
		if got, err := parseDocument("a.md", []byte(wrong)).blocks(); err == nil {
			t.Errorf("%q was parsed as %+v", wrong, got)
		}
	}
}
