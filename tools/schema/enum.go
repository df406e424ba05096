package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// readEnums gives the constants of each string type, in the order of the source:
// reflection knows of no constants.
func readEnums(folder string) (map[string][]any, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	enums := map[string][]any{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				addConstant(enums, spec)
			}
			return true
		})
	}
	return enums, nil
}

// addConstant takes up Name Type = "value".
func addConstant(enums map[string][]any, spec *ast.ValueSpec) {
	t, ok := spec.Type.(*ast.Ident)
	if !ok || len(spec.Values) != 1 {
		return
	}
	literal, ok := spec.Values[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return
	}
	if value, err := strconv.Unquote(literal.Value); err == nil {
		enums[t.Name] = append(enums[t.Name], value)
	}
}
