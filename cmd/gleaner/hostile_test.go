package main

import (
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
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

// hostileFile is a List of objects whose names are printertest.Hostile, and of what they wait for.
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
		object("Widget", printertest.Hostile, "1", map[string]any{
			"finalizers": []any{"example.com/" + printertest.Hostile}, "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
		}),
		object("Widget", "a"+printertest.Hostile, "2", map[string]any{"ownerReferences": owner(printertest.Hostile, "1")}),
		object("Widget", "b", "3", map[string]any{"ownerReferences": owner("gone"+printertest.Hostile, "9"+printertest.Hostile)}),
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

func TestHostileNames_AreEscapedInAllFormats(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	file := hostileFile(t)
	for _, args := range [][]string{
		{"graph"}, {"graph", "-o", "wide"}, {"graph", "-o", "dot"}, {"graph", "-o", "mermaid"}, {"graph", "-o", "svg"}, {"graph", "-o", "json"}, {"graph", "-o", "yaml"},
		{"preview", "delete", "widget/" + printertest.Hostile, "-n", "shop"}, {"preview", "delete", "widget/" + printertest.Hostile, "-n", "shop", "-o", "wide"},
		{"preview", "delete", "widget/" + printertest.Hostile, "-n", "shop", "-o", "name"}, {"preview", "delete", "widget/" + printertest.Hostile, "-n", "shop", "-o", "json"},
		{"preview", "delete", "widget/" + printertest.Hostile, "-n", "shop", "-o", "yaml"},
		{"explain", printertest.Hostile}, {"stuck", printertest.Hostile}, {"doctor", printertest.Hostile}, {"release", printertest.Hostile}, {printertest.Hostile}, {"graph", "--" + printertest.Hostile}, {"test", printertest.Hostile},
		{"module", "inspect", printertest.Hostile}, {"run", "--collector", printertest.Hostile},
	} {
		what := strings.Join(args, " ")
		if args[0] == "graph" || args[0] == "preview" {
			args = append(args, "-f", file)
		}
		out, _ := piped(t, args)
		format := "error"
		if (args[0] == "graph" || args[0] == "preview") && what != "graph --"+printertest.Hostile {
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
			if err := yaml.Unmarshal([]byte(out), &document); err != nil || !strings.Contains(fmt.Sprint(document), printertest.Hostile) {
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
		printertest.CheckHarmless(t, what, out)
	}
}

func TestHostileNames_AreEscapedOnTerminals(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("TERM", "xterm")
	out, _ := onTerminal(t, []string{"graph", "-f", hostileFile(t)})
	for _, color := range []printer.Color{printer.Bad, printer.Good, printer.Caution, printer.Hint, printer.Faint, printer.Strong} {
		out = strings.ReplaceAll(out, "\x1b["+string(color)+"m", "")
	}
	printertest.CheckHarmless(t, "graph", strings.ReplaceAll(out, "\x1b[0m", ""))
}

// guarding are packages that escape what they print themselves.
var guarding = []string{"printer", "kubectl", "permissions", "reference"}

// A new command can't forget: its output is guarded, and printing by package fmt, which
// takes a line break in an argument for one of its own, is refused here.
func TestCommands_PrintThroughGuardedWriter(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.PersistentPreRun != nil || c.PersistentPreRunE != nil {
				t.Errorf("%s has a PersistentPreRun of its own: then its output is not guarded", c.CommandPath())
			}
			walk(c)
		}
	}
	cmd := rootCommand()
	walk(cmd)
	cmd.PersistentPreRun(cmd, nil)
	for what, out := range map[string]io.Writer{"out": cmd.OutOrStdout(), "err": cmd.ErrOrStderr()} {
		if _, ok := out.(*printer.Writer); !ok {
			t.Errorf("%s is not guarded", what)
		}
	}
	var files []string
	for _, pattern := range []string{"*.go", "../gleaner-dev/*.go", "../../internal/cli/*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || slices.Contains(guarding, filepath.Base(filepath.Dir(name))) {
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
					from.Name == "os" && (s.Sel.Name == "Stdout" || s.Sel.Name == "Stderr") && filepath.Base(name) != "main.go" || from.Name == "io" && s.Sel.Name == "WriteString") {
					t.Errorf("%s: %s.%s: use printer.Fprintf, which escapes its arguments", set.Position(n.Pos()), from.Name, s.Sel.Name)
				}
			}
			return true
		})
	}
}
