package docs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// document is a page in Markdown.
type document struct {
	name   string // from the root
	source []byte
	tree   ast.Node
}

func readDocument(t *testing.T, name string) document {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return parseDocument(name, source)
}

func parseDocument(name string, source []byte) document {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM))
	return document{name: name, source: source, tree: markdown.Parser().Parse(text.NewReader(source))}
}

// block is a code block of commands.
type block struct {
	line     int
	commands []command
	runBy    *place // it is run elsewhere
}

// command is what somebody types, and what they see then.
type command struct {
	line    int
	text    string
	checked bool     // against want; else all that counts is that it succeeds
	want    []string // lines
}

// place is where else commands are run: a file, and the texts in it that run them.
type place struct {
	file  string
	texts []string
}

// runBy is the comment before a block that is run elsewhere.
var runBy = regexp.MustCompile(`^<!-- run by (\S+): (.+) -->$`)

// blocks finds the blocks of commands: sh, which have to succeed, and console,
// whose output is compared.
func (d document) blocks() ([]block, error) {
	var list []block
	err := ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		fence, ok := n.(*ast.FencedCodeBlock)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		b := block{line: d.lineOf(fence), runBy: d.marked(fence)}
		switch language := string(fence.Language(d.source)); language {
		case "sh":
			b.commands = script(d.text(fence), b.line)
		case "console":
			commands, err := transcript(d.text(fence), b.line)
			if err != nil {
				return ast.WalkStop, fmt.Errorf("%s: %w", d.name, err)
			}
			b.commands = commands
		case "bash", "shell", "zsh":
			return ast.WalkStop, fmt.Errorf("%s:%d: write sh or console in place of %s: those are run", d.name, b.line, language)
		default:
			return ast.WalkContinue, nil
		}
		list = append(list, b)
		return ast.WalkContinue, nil
	})
	return list, err
}

// marked returns what the comment before a block says.
func (d document) marked(n ast.Node) *place {
	comment, ok := n.PreviousSibling().(*ast.HTMLBlock)
	if !ok {
		return nil
	}
	var b strings.Builder
	for i := range comment.Lines().Len() {
		line := comment.Lines().At(i)
		b.Write(line.Value(d.source))
	}
	if comment.HasClosure() {
		b.Write(comment.ClosureLine.Value(d.source))
	}
	m := runBy.FindStringSubmatch(strings.TrimSpace(b.String()))
	if m == nil {
		return nil
	}
	return &place{m[1], strings.Split(m[2], " | ")}
}

func (d document) text(n ast.Node) string {
	return string(n.Lines().Value(d.source))
}

// lineOf returns the line of the first line of code.
func (d document) lineOf(n ast.Node) int {
	if n.Lines().Len() == 0 {
		return 0
	}
	return 1 + bytes.Count(d.source[:n.Lines().At(0).Start], []byte("\n"))
}

// script splits a block only where it starts a control plane, which is typed into a
// terminal of its own.
func script(text string, line int) []command {
	text = strings.TrimRight(text, "\n")
	before, last := "", text
	if i := strings.LastIndex(text, "\n"); i >= 0 {
		before, last = text[:i], text[i+1:]
	}
	if !isDev(last) || before == "" {
		return []command{{line: line, text: text}}
	}
	return []command{{line: line, text: before}, {line: line + strings.Count(before, "\n") + 1, text: last}}
}

// transcript reads "$ command" and "> more of it", and the output below.
func transcript(text string, line int) ([]command, error) {
	var list []command
	for i, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(l, "$ "):
			list = append(list, command{line: line + i, text: l[2:], checked: true})
		case len(list) == 0:
			return nil, fmt.Errorf("line %d: a console begins with a command: write $ before it, or text in place of console", line+i)
		case (l == ">" || strings.HasPrefix(l, "> ")) && len(list[len(list)-1].want) == 0:
			list[len(list)-1].text += "\n" + strings.TrimPrefix(strings.TrimPrefix(l, ">"), " ")
		default:
			c := &list[len(list)-1]
			c.want = append(c.want, l)
		}
	}
	return list, nil
}

// isDev tells the command that runs a control plane until it is interrupted.
func isDev(command string) bool {
	return command == "bin/gleaner dev" || command == "gleaner dev"
}
