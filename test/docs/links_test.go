package docs

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// TestLinks checks all links of the documents within the tree. External links
// are not checked: tests need no network.
func TestLinks(t *testing.T) {
	files, err := listFiles()
	if err != nil {
		t.Fatal(err)
	}
	documents := map[string]document{}
	for _, file := range files {
		if strings.HasSuffix(file, ".md") && !strings.Contains(file, "testdata/") {
			documents[file] = readDocument(t, file)
		}
	}
	if len(documents) < 20 {
		t.Fatalf("only %d documents are found", len(documents))
	}
	for name, d := range documents {
		for _, link := range d.links(t) {
			if problem := checkLink(documents, name, link); problem != nil {
				t.Errorf("%s: the link to %s: %v", name, link.target, problem)
			}
		}
	}
}

// link is a link's text and target.
type link struct{ text, target string }

// links returns a document's links and images.
func (d document) links(t *testing.T) []link {
	t.Helper()
	var list []link
	err := ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			list = append(list, link{d.plain(n), string(n.Destination)})
		case *ast.Image:
			list = append(list, link{"", string(n.Destination)})
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// namesTest matches a link to a test, whose text is the test's name.
var namesTest = regexp.MustCompile(`^(Test|Fuzz)\w+$`)

// checkLink returns what is wrong with a link.
func checkLink(documents map[string]document, from string, l link) error {
	target, err := url.Parse(l.target)
	if err != nil {
		return err
	}
	if target.Scheme != "" || target.Host != "" {
		return nil
	}
	name := from
	if target.Path != "" {
		name = path.Join(path.Dir(from), target.Path)
	}
	file := filepath.Join(root, filepath.FromSlash(name))
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("%s not found", name)
	}
	if strings.HasSuffix(name, "_test.go") && namesTest.MatchString(l.text) {
		if source, err := os.ReadFile(file); err != nil || !strings.Contains(string(source), "func "+l.text+"(") {
			return fmt.Errorf("no test %s in %s", l.text, name)
		}
	}
	if target.Fragment == "" {
		return nil
	}
	d, ok := documents[name]
	if !ok {
		return fmt.Errorf("%s is not a document", name)
	}
	for _, anchor := range d.anchors() {
		if anchor == target.Fragment {
			return nil
		}
	}
	return fmt.Errorf("no heading #%s in %s", target.Fragment, name)
}

// anchors returns the anchors that code hosts generate for a document's headings.
func (d document) anchors() []string {
	var list []string
	seen := map[string]int{}
	_ = ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // never fails
		if h, ok := n.(*ast.Heading); ok && entering {
			name := slug(d.plain(h))
			if n := seen[name]; n > 0 {
				list = append(list, fmt.Sprintf("%s-%d", name, n))
			} else {
				list = append(list, name)
			}
			seen[name]++
		}
		return ast.WalkContinue, nil
	})
	for _, m := range explicitAnchor.FindAllSubmatch(d.source, -1) {
		list = append(list, string(m[1]))
	}
	return list
}

var explicitAnchor = regexp.MustCompile(`<a (?:id|name)="([^"]+)">`)

// plain returns the text of a node without its markup.
func (d document) plain(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // never fails
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Value(d.source))
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// slug returns the anchor of a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		default:
			return -1
		}
	}, heading)
}

func TestLinks_BrokenOnesAreFound(t *testing.T) {
	documents := map[string]document{
		"README.md":        parseDocument("README.md", []byte("# What is *there*?\n\n## Twice\n\n## Twice\n")),
		"docs/policies.md": parseDocument("docs/policies.md", []byte("[a](../README.md)\n")),
	}
	for to, want := range map[link]string{
		{"", "../README.md"}:                                 "",
		{"", "../README.md#what-is-there"}:                   "",
		{"", "../README.md#twice-1"}:                         "",
		{"", "https://example.com/nowhere"}:                  "",
		{"TestLinks", "../test/docs/links_test.go"}:          "",
		{"", "../README.md#twice-2"}:                         "no heading #twice-2 in README.md",
		{"", "nowhere.md"}:                                   "docs/nowhere.md not found",
		{"", "../docs#x"}:                                    "docs is not a document",
		{"TestThatIsNotThere", "../test/docs/links_test.go"}: "no test TestThatIsNotThere in test/docs/links_test.go",
	} {
		got := ""
		if err := checkLink(documents, "docs/policies.md", to); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", to, got, want)
		}
	}
}
