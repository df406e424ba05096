package rego

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// Document is a data file for the tests of a policy, as data.json is for opa test.
// A policy itself has no data but its input.
type Document struct {
	Name string
	Path []string // path below data
	Text []byte   // JSON or YAML
}

// merge merges the documents.
func merge(documents []Document) (map[string]any, error) {
	all := map[string]any{}
	for _, d := range documents {
		var value map[string]any
		if err := util.Unmarshal(d.Text, &value); err != nil {
			return nil, &Error{Message: fmt.Sprintf("%s: it must be one object, in JSON or YAML: %v", d.Name, err)}
		}
		for _, name := range slices.Backward(d.Path) {
			value = map[string]any{name: value}
		}
		if at, ok := mergeInto(all, value, "data"); !ok {
			return nil, &Error{Message: fmt.Sprintf("%s: %s is also defined in another file", d.Name, at)}
		}
	}
	return all, nil
}

// mergeInto merges a document into another. It returns the path that both define,
// if any.
func mergeInto(all, more map[string]any, path string) (string, bool) {
	for _, name := range slices.Sorted(maps.Keys(more)) {
		old, exists := all[name]
		if !exists {
			all[name] = more[name]
			continue
		}
		into, isObject := old.(map[string]any)
		from, both := more[name].(map[string]any)
		if !isObject || !both {
			return path + "." + name, false
		}
		if at, ok := mergeInto(into, from, path+"."+name); !ok {
			return at, false
		}
	}
	return "", true
}

// checkUse rejects the use of documents in the rules of the policy itself: only its
// tests have them, and a cluster would reject such a module.
func checkUse(modules, all map[string]*ast.Module) error {
	compiler := ast.NewCompiler().WithCapabilities(language()).WithDefaultRegoVersion(ast.RegoV1).WithEnablePrintStatements(true)
	if compiler.Compile(all); compiler.Failed() {
		return explain(compiler.Errors)
	}
	var errs []*Error
	for _, name := range sortedKeys(modules) {
		if !isTest(name) {
			errs = append(errs, checkData(withoutTests(compiler.Modules[name]), compiler)...)
		}
	}
	if len(errs) != 0 {
		return joinErrors(errs)
	}
	return nil
}

// withoutTests removes the rules that opa test would run.
func withoutTests(module *ast.Module) *ast.Module {
	module.Rules = slices.DeleteFunc(module.Rules, func(r *ast.Rule) bool {
		name := r.Head.Ref()[0].Value.String()
		return strings.HasPrefix(name, "test_") || strings.HasPrefix(name, "todo_test_")
	})
	return module
}
