package rego

import (
	"fmt"
	"io/fs"
	"maps"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	sdk "github.com/gleaner-dev/gleaner/sdk/rego"
)

// libraryRef is the package of the library.
var libraryRef = ast.MustParseRef("data.gleaner.sdk")

// library is the source that every policy may import. Its tests check that it
// parses.
var library = sync.OnceValues(func() (map[string]*ast.Module, error) {
	names, err := fs.Glob(sdk.Files, "*.rego")
	if err != nil {
		return nil, fmt.Errorf("list library: %w", err)
	}
	modules := map[string]*ast.Module{}
	for _, name := range names {
		if isTest(name) {
			continue
		}
		text, err := fs.ReadFile(sdk.Files, name)
		if err != nil {
			return nil, fmt.Errorf("read library: %w", err)
		}
		full := "gleaner/sdk/" + name
		if modules[full], err = parseFile(File{Name: full, Text: string(text)}); err != nil {
			return nil, fmt.Errorf("parse library: %w", err)
		}
	}
	return modules, nil
})

// withLibrary adds the library to a policy that uses it.
func withLibrary(modules map[string]*ast.Module) (map[string]*ast.Module, error) {
	if !usesLibrary(modules) {
		return modules, nil
	}
	all, err := library()
	if err != nil {
		return nil, err
	}
	all = maps.Clone(all)
	maps.Copy(all, modules)
	return all, nil
}

func usesLibrary(modules map[string]*ast.Module) bool {
	used := false
	for _, module := range modules {
		ast.WalkRefs(module, func(ref ast.Ref) bool {
			used = used || ref.HasPrefix(libraryRef)
			return used
		})
	}
	return used
}
