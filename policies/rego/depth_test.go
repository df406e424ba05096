package rego

import (
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
)

// honest are texts that hold brackets which are none.
const honest = "package gleaner\n" +
	"# ((((((((((((((((((((\n" +
	"a := \"((((\\\"(((((((((\\u0028(\"\n" +
	"b := `(((\n\\((((((`\n" +
	"c := $\"((( {concat(\"\", [\"(((\", $`(( \\{ {input.x} ((`])} ((( \\{ \\\" (((\"\n" +
	"collect := [a, b, c]\n"

func TestNesting_IgnoresBracketsInStrings(t *testing.T) {
	text := honest + strings.Repeat("# ((\n", 1_000) + strings.Repeat("d contains \"(((\"\n", 1_000)
	if err := checkNesting(File{"a.rego", text}); err != nil {
		t.Error(err)
	}
	if _, err := parseFile(File{"a.rego", honest}); err != nil {
		t.Errorf("the text is no Rego: %v", err)
	}
}

// FuzzNesting holds that what is let through is parsed, or refused, without
// nesting deeper than it was said to.
func FuzzNesting(f *testing.F) {
	f.Add(honest)
	f.Add("package gleaner\ncollect := " + strings.Repeat("1-(", 90) + "1" + strings.Repeat(")", 90))
	f.Add("package gleaner\ncollect := $\"a{$`b{{1, 2}}c`}d{\"\\\")\"}\"")
	f.Add("package gleaner\ncollect := {x | some x in [y | y := {1: 2}[_]]} # }}")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 || checkNesting(File{"a.rego", text}) != nil {
			return
		}
		module, err := ast.ParseModuleWithOpts("a.rego", text, ast.ParserOptions{Capabilities: language(), RegoVersion: ast.RegoV1})
		if err != nil {
			return
		}
		templates, most := 0, 0
		enter := func(x any) bool {
			if _, ok := x.(*ast.TemplateString); ok {
				templates++
				most = max(most, templates)
			}
			return false
		}
		leave := func(x any) {
			if _, ok := x.(*ast.TemplateString); ok {
				templates--
			}
		}
		ast.NewBeforeAfterVisitor(enter, leave).Walk(module)
		if most > maxTemplates {
			t.Errorf("%d template strings are nested in %q", most, text)
		}
	})
}
