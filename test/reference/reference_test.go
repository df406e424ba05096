// Package reference generates the pages of docs/reference from the code, and fails
// if one of them is out of date. Tests of cmd/gleaner and
// cmd/gleaner-dev generate the pages on commands.
//
// After a change run "make generate", or
//
//	go test ./test/reference -rewrite
//
// and read the diff.
package reference

//go:generate go test . -run ^TestReference$ -count=1 -rewrite

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write docs/reference; then read the diff")

const (
	root   = "../.."
	folder = root + "/docs/reference"
)

func TestReference(t *testing.T) {
	code := parseTree(t, "operator", "cmd", "internal", "crds", "policies")
	for name, write := range map[string]func(*testing.T, source) string{
		"api.md":        describeAPI,
		"abi.md":        describeABI,
		"conditions.md": describeConditions,
		"events.md":     describeEvents,
		"metrics.md":    describeMetrics,
	} {
		t.Run(name, func(t *testing.T) {
			want := write(t, code)
			path := filepath.Join(folder, name)
			if *rewrite {
				if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			have, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, string(have)); diff != "" {
				t.Errorf("%s is out of date: run make generate, then read the diff (-want +have):\n%s", path, diff)
			}
		})
	}
}

// row returns a row of a table. A cell may have several lines.
func row(cells ...string) string {
	for i, c := range cells {
		c = strings.ReplaceAll(strings.TrimSpace(c), "|", `\|`)
		cells[i] = strings.Join(strings.Fields(c), " ")
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// code formats text as code, unless it is empty.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// codes formats a list of texts as code.
func codes(list []string) string {
	marked := make([]string, 0, len(list))
	for _, text := range list {
		marked = append(marked, code(text))
	}
	return strings.Join(marked, ", ")
}

// plain escapes prose for Markdown.
func plain(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`, "_", `\_`).Replace(text)
}

// sentence makes prose begin with a capital letter and end with a period.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	text = strings.ToUpper(text[:1]) + text[1:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
