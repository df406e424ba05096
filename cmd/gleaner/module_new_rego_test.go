package main

import (
	"os"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/format"
	"github.com/open-policy-agent/opa/v1/loader"
	"github.com/open-policy-agent/opa/v1/tester"
)

// What opa fmt, opa check and opa test do with their arguments, with nothing of Gleaner.
func TestModuleNew_Rego_PassesOPACheck(t *testing.T) {
	for _, hook := range newHooks {
		t.Run(hook, func(t *testing.T) {
			newModuleFolder(t, "rego", hook)
			found, err := loader.AllRegos([]string{"."})
			if err != nil {
				t.Fatal(err)
			}
			for name, file := range found.Modules {
				if formatted, err := format.Source(name, file.Raw); err != nil || string(formatted) != string(file.Raw) {
					t.Errorf("opa fmt changes %s: %v", name, err)
				}
			}
			modules := found.ParsedModules()
			if len(modules) < 8 {
				t.Fatalf("there are only %d files", len(modules))
			}
			compiler := ast.NewCompiler().WithStrict(true).WithEnablePrintStatements(true)
			if compiler.Compile(modules); compiler.Failed() {
				t.Fatal(compiler.Errors)
			}
			bundle, err := loader.NewFileLoader().AsBundle(".")
			if err != nil {
				t.Fatal(err)
			}
			results, err := tester.NewRunner().SetModules(bundle.ParsedModules(".")).RunTests(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			passed := 0
			for r := range results {
				if passed++; !r.Pass() {
					t.Errorf("%s fails", r)
				}
			}
			if passed == 0 {
				t.Error("opa test --bundle finds no test")
			}
		})
	}
}

// Compiled by Go, the module takes nearly all of the 1 MiB that a ConfigMap holds.
func TestModuleNew_Go_MentionsSizeLimit(t *testing.T) {
	t.Chdir(t.TempDir())
	out, err := execute(t, "module", "new", "--lang", "go", "bucket-cleaner")
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, out, "1 MiB", "gleaner module build --tinygo", "gleaner module push")
	readme, err := os.ReadFile("bucket-cleaner/README.md")
	if err != nil {
		t.Fatal(err)
	}
	containsAll(t, string(readme), "1 MiB", "gleaner module build --tinygo", "gleaner module push module.wasm.gz")
	if out, err = execute(t, "module", "new", "--lang", "rego", "claims"); err != nil || strings.Contains(out, "TinyGo") {
		t.Error(err, out)
	}
}
