package rego

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// Document is a file of data for the tests of a policy, as data.json is for
// opa test. A policy itself has no documents but its input.
type Document struct {
	Name string
	Path []string // where it is below data
	Text []byte   // JSON or YAML
}

// merge makes one document of all.
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
			return nil, &Error{Message: fmt.Sprintf("%s: %s is in another file as well", d.Name, at)}
		}
	}
	return all, nil
}

// mergeInto adds a document to another, or gives the path that both have.
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

// checkUse refuses documents in the rules of the policy itself: only its tests
// have any, and in a cluster such a module is not accepted.
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
		return together(errs)
	}
	return nil
}

// withoutTests leaves out the rules that opa test would run.
func withoutTests(module *ast.Module) *ast.Module {
	module.Rules = slices.DeleteFunc(module.Rules, func(r *ast.Rule) bool {
		name := r.Head.Ref()[0].Value.String()
		return strings.HasPrefix(name, "test_") || strings.HasPrefix(name, "todo_test_")
	})
	return module
}
