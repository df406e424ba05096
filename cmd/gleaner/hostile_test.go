package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/doctor"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/explain"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/monitor"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/rights"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/stuck"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/release"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

// hostile is a name, a message or a reason that would be more than that: it begins a
// row of its own, moves the cursor, and hides what is behind it.
const hostile = "evil\nFORGED   row\r\x1b[2K\x1b]0;title\x07\u009b31m\u202e\u200b%%{init: {}}%%\"]<script>`\x00\v\f"

// harmless makes sure that text for people holds nothing else.
func harmless(t *testing.T, what, out string) {
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

// hostileFile is a List of objects whose names are hostile, and of what they wait for.
func hostileFile(t *testing.T) string {
	t.Helper()
	object := func(kind, name, uid string, more map[string]any) map[string]any {
		metadata := map[string]any{"name": name, "namespace": "shop", "uid": uid}
		for key, value := range more {
			metadata[key] = value
		}
		return map[string]any{"apiVersion": "example.com/v1", "kind": kind, "metadata": metadata}
	}
	owner := func(name, uid string) []any {
		return []any{map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "name": name, "uid": uid, "blockOwnerDeletion": true}}
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{
		object("Widget", hostile, "1", map[string]any{
			"finalizers": []any{"example.com/" + hostile}, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
		}),
		object("Widget", "a"+hostile, "2", map[string]any{"ownerReferences": owner(hostile, "1")}),
		object("Widget", "b", "3", map[string]any{"ownerReferences": owner("gone"+hostile, "9"+hostile)}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "hostile.json")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestHostileNamesStayTextInEachFormat(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	file := hostileFile(t)
	for _, args := range [][]string{
		{"graph"}, {"graph", "-o", "wide"}, {"graph", "-o", "dot"}, {"graph", "-o", "mermaid"}, {"graph", "-o", "svg"}, {"graph", "-o", "json"}, {"graph", "-o", "yaml"},
		{"preview", "delete", "widget/" + hostile, "-n", "shop"}, {"preview", "delete", "widget/" + hostile, "-n", "shop", "-o", "wide"},
		{"preview", "delete", "widget/" + hostile, "-n", "shop", "-o", "name"}, {"preview", "delete", "widget/" + hostile, "-n", "shop", "-o", "json"},
		{"preview", "delete", "widget/" + hostile, "-n", "shop", "-o", "yaml"},
		{"explain", hostile}, {"stuck", hostile}, {"doctor", hostile}, {"release", hostile}, {hostile}, {"graph", "--" + hostile}, {"test", hostile},
		{"module", "inspect", hostile}, {"run", "--collector", hostile},
	} {
		what := strings.Join(args, " ")
		if args[0] == "graph" || args[0] == "preview" {
			args = append(args, "-f", file)
		}
		out, _ := piped(t, args)
		format := "error"
		if (args[0] == "graph" || args[0] == "preview") && what != "graph --"+hostile {
			format = args[len(args)-3]
		}
		if !strings.Contains(out, "evil") {
			t.Errorf("%s: the name is not there at all:\n%s", what, out)
		}
		switch format {
		case "error": // has several lines, of which all but the first are indented
			if strings.Contains(out, "\nFORGED") {
				t.Errorf("%s: a forged line:\n%s", what, out)
			}
			continue
		case "json", "yaml":
			var document any
			if err := yaml.Unmarshal([]byte(out), &document); err != nil || !strings.Contains(fmt.Sprint(document), hostile) {
				t.Errorf("%s: the name is not what it was: %v\n%s", what, err, out)
			}
			if strings.ContainsAny(out, "\x1b\r") || strings.Contains(out, "\nFORGED") {
				t.Errorf("%s: a terminal would obey it: %q", what, out)
			}
			continue
		case "svg":
			d := xml.NewDecoder(strings.NewReader(out))
			for {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: it is no XML: %v", what, err)
				}
			}
		case "mermaid":
			if strings.Contains(out, "%%{") || strings.Contains(out, "<script>") || strings.Contains(out, "`") {
				t.Errorf("%s: it is more than a label:\n%s", what, out)
			}
		}
		harmless(t, what, out)
	}
}

func TestHostileNamesStayTextOnATerminal(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("TERM", "xterm")
	out, _ := onTerminal(t, []string{"graph", "-f", hostileFile(t)})
	for _, color := range []kubectl.Color{kubectl.Bad, kubectl.Good, kubectl.Unsure, kubectl.Calm, kubectl.Faint, kubectl.Strong} {
		out = strings.ReplaceAll(out, "\x1b["+string(color)+"m", "")
	}
	harmless(t, "graph", strings.ReplaceAll(out, "\x1b[0m", ""))
}

// fill writes the hostile text into whatever can hold it.
func fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(hostile)
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

func filled[T any]() T {
	var value T
	fill(reflect.ValueOf(&value).Elem(), 6)
	return value
}

// What the commands show that ask a cluster is made of what is in it, and of what
// modules and servers have said.
func TestHostileReportsStayText(t *testing.T) {
	explained := filled[explain.Explanation]()
	explained.State = explain.BeingDeleted
	for what, write := range map[string]func(io.Writer) error{
		"explain": func(out io.Writer) error { return showExplanation(out, kubectl.Palette{}, explained) },
		"stuck": func(out io.Writer) error {
			r := filled[stuck.Report]()
			r.Objects = 2
			return errors.Join(showStuck(section{out: out}, r, false), showStuck(section{out: out}, r, true))
		},
		"monitor": func(out io.Writer) error { return showMonitored(section{out: out}, filled[monitor.Report]()) },
		"doctor": func(out io.Writer) error {
			showReport(section{out: out}, filled[doctor.Report](), true)
			return nil
		},
		"release": func(out io.Writer) error {
			held := filled[[]release.Held]()
			show(out, held)
			filled[target]().warn(out, held)
			target{finalizer: hostile, ours: hostile}.warn(out, held)
			confirmed(strings.NewReader("n"), out, hostile)
			return nil
		},
		"rbac": func(out io.Writer) error {
			rights.Write(out, filled[rights.Setup](), filled[[]rights.Right]())
			return showMissing(section{out: out}, filled[rights.Setup](), filled[[]rights.Missing]())
		},
		"preview": func(out io.Writer) error {
			return errors.Join(writePreview(out, filledPreview(), false), writePreview(out, filledPreview(), true))
		},
		"graph": func(out io.Writer) error {
			o := filled[ownership]()
			return errors.Join(writeOwnership(out, &o, true), writeMermaid(out, &o), writeSVG(out, &o))
		},
		"test": func(out io.Writer) error {
			report := &testText{to: out, verbose: true}
			s := filled[testSuite]()
			for i := range s.Results {
				s.Results[i].Outcome = failed
			}
			return report.suite(s)
		},
		"module": func(out io.Writer) error {
			(&loaded{}).say(out, filled[wasm.Log]())
			return nil
		},
		"error": func(out io.Writer) error {
			tell(out, "gleaner", fmt.Errorf("read objects: %w", errors.Join(errors.New(hostile), errors.New("second"))))
			return nil
		},
	} {
		var out bytes.Buffer
		if err := write(kubectl.Guard(&out)); err != nil && !errors.As(err, &kubectl.Exit{}) {
			t.Errorf("%s: %v", what, err)
		}
		if !strings.Contains(out.String(), "evil") {
			t.Errorf("%s shows nothing of it:\n%s", what, out.String())
		}
		if what == "error" || what == "test" { // which have blocks that are indented
			if strings.Contains(out.String(), "\nFORGED") {
				t.Errorf("%s: a forged line:\n%s", what, out.String())
			}
			continue
		}
		harmless(t, what, out.String())
	}
}

func filledPreview() *deletionPreview {
	d := filled[deletionPreview]()
	return &d
}

func TestLogLinesCanNotBeForged(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		o := defaultOptions()
		o.logFormat = format
		log := o.logger(kubectl.Guard(&out))
		log.Info("Something was decided", "object", hostile, "names", []string{hostile})
		log.Error(errors.New(hostile), "Something went wrong", "object", hostile)
		lines := strings.Count(out.String(), "\n")
		if format == "json" {
			for line := range strings.Lines(out.String()) {
				var entry map[string]any
				if err := json.Unmarshal([]byte(line), &entry); err != nil || entry["object"] != hostile {
					t.Errorf("%s: %v", line, err)
				}
			}
		}
		if lines != 2 || strings.Contains(out.String(), "\nFORGED") {
			t.Errorf("%s: %d lines, want 2:\n%s", format, lines, out.String())
		}
		harmless(t, format, strings.ReplaceAll(out.String(), "\t", " "))
	}
}

// A new command can't forget: its output is guarded, and printing by package fmt, which
// takes a line break in an argument for one of its own, is refused here.
func TestEveryCommandPrintsByTheGuardedWay(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.PersistentPreRun != nil || c.PersistentPreRunE != nil {
				t.Errorf("%s has a PersistentPreRun of its own: then its output is not guarded", c.CommandPath())
			}
			walk(c)
		}
	}
	cmd := root()
	walk(cmd)
	cmd.PersistentPreRun(cmd, nil)
	for what, out := range map[string]io.Writer{"out": cmd.OutOrStdout(), "err": cmd.ErrOrStderr()} {
		if _, ok := out.(*kubectl.Writer); !ok {
			t.Errorf("%s is not guarded", what)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := s.X.(*ast.Ident); ok && (from.Name == "fmt" && (strings.HasPrefix(s.Sel.Name, "Fprint") || strings.HasPrefix(s.Sel.Name, "Print")) ||
					from.Name == "os" && (s.Sel.Name == "Stdout" || s.Sel.Name == "Stderr") && name != "main.go" || from.Name == "io" && s.Sel.Name == "WriteString") {
					t.Errorf("%s: %s.%s: print by kubectl.Fprintf, whose arguments are one line each", set.Position(n.Pos()), from.Name, s.Sel.Name)
				}
			}
			return true
		})
	}
}
