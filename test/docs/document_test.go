package docs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	first    string // line of text
	commands []command
}

// command is a command to type, and its expected output.
type command struct {
	line    int
	text    string
	checked bool     // compare output with want; otherwise only success is required
	want    []string // lines
}

// program matches a command line in a block that is not marked as commands.
var program = regexp.MustCompile(`(?m)^ *(?:\$ )?(?:bin/)?(?:gleaner|kubectl|make|go|git|curl|cp|gzip|tinygo|docker|export|kubeadm|kustomize) +[^ ]`)

// blocks returns the blocks of commands: sh, which must succeed, and console,
// whose output is compared. Commands in other blocks are an error, so that none is missed.
func (d document) blocks() ([]block, error) {
	var list []block
	err := ast.Walk(d.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering || n.Kind() != ast.KindFencedCodeBlock && n.Kind() != ast.KindCodeBlock {
			return ast.WalkContinue, nil
		}
		b, language := block{line: d.lineOf(n)}, ""
		b.first, _, _ = strings.Cut(d.text(n), "\n")
		if fence, ok := n.(*ast.FencedCodeBlock); ok {
			language = string(fence.Language(d.source))
		}
		switch language {
		case "sh":
			b.commands = script(d.text(n), b.line)
		case "console":
			commands, err := transcript(d.text(n), b.line)
			if err != nil {
				return ast.WalkStop, fmt.Errorf("%s: %w", d.name, err)
			}
			b.commands = commands
		case "bash", "shell", "zsh":
			return ast.WalkStop, fmt.Errorf("%s:%d: use sh or console instead of %s, so that it is run", d.name, b.line, language)
		case "", "text", "plain":
			if line := program.FindString(d.text(n)); line != "" {
				return ast.WalkStop, fmt.Errorf("%s:%d: mark the block with commands (%s…) as sh or console, so that it is run", d.name, b.line, line)
			}
			return ast.WalkContinue, nil
		default:
			return ast.WalkContinue, nil
		}
		list = append(list, b)
		return ast.WalkContinue, nil
	})
	return list, err
}

func (d document) text(n ast.Node) string {
	return string(n.Lines().Value(d.source))
}

// lineOf returns the line number of the first line of code.
func (d document) lineOf(n ast.Node) int {
	if n.Lines().Len() == 0 {
		return 0
	}
	return 1 + bytes.Count(d.source[:n.Lines().At(0).Start], []byte("\n"))
}

// script parses a block that must succeed as a whole. It is split into lines if one of
// them runs until it is interrupted, which gets a terminal of its own.
func script(text string, line int) []command {
	text = strings.TrimRight(text, "\n")
	lines := strings.Split(text, "\n")
	if !slices.ContainsFunc(lines, runsUntilInterrupted) {
		return []command{{line: line, text: text}}
	}
	var list []command
	for i, l := range lines {
		list = append(list, command{line: line + i, text: l})
	}
	return list
}

// transcript parses "$ command", continuation lines "> …", and the output below.
func transcript(text string, line int) ([]command, error) {
	var list []command
	for i, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(l, "$ "):
			list = append(list, command{line: line + i, text: l[2:], checked: true})
		case len(list) == 0:
			return nil, fmt.Errorf("line %d: a console block must begin with a command: write $ before it, or use text instead of console", line+i)
		case (l == ">" || strings.HasPrefix(l, "> ")) && len(list[len(list)-1].want) == 0:
			list[len(list)-1].text += "\n" + strings.TrimPrefix(strings.TrimPrefix(l, ">"), " ")
		default:
			c := &list[len(list)-1]
			c.want = append(c.want, l)
		}
	}
	return list, nil
}

// withoutComment returns a command without its comment.
func withoutComment(line string) string {
	line, _, _ = strings.Cut(line, " # ")
	return strings.TrimSpace(line)
}

// isDev reports whether a command runs a control plane until it is interrupted.
func isDev(line string) bool {
	line = strings.TrimPrefix(withoutComment(line), "make build && ")
	return line == "bin/gleaner-dev dev" || line == "gleaner-dev dev"
}

// servers are the other commands that run until they are interrupted, and their
// addresses.
var servers = map[string]string{
	"cd test/s3 && go run .":                 "127.0.0.1:7070",
	"go run ./examples/dns-finalizer/server": "127.0.0.1:8053",
}

// runsUntilInterrupted reports whether a command runs until it is interrupted.
func runsUntilInterrupted(line string) bool {
	return isDev(line) || servers[withoutComment(line)] != ""
}
