package rego

import (
	"context"
	"errors"
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/bundle"
	"github.com/open-policy-agent/opa/v1/compile"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/settings"
)

// compiled is the output of OPA's compiler for a policy.
type compiled struct {
	code  []byte // WebAssembly
	hooks []hostabi.Hook
	needs policies.Needs
}

// compileFiles checks and compiles a policy. The number of an entry point is its
// index in hooks.
func compileFiles(ctx context.Context, files []File) (compiled, error) {
	modules, err := parse(files, false)
	if err != nil {
		return compiled{}, err
	}
	if len(modules) == 0 {
		return compiled{}, &Error{Message: "no file with rules: files that end in " + testSuffix + " only contain tests"}
	}
	schema, err := settingsSchema(files)
	if err != nil {
		return compiled{}, err
	}
	if schema != nil {
		if err := addValidate(modules); err != nil {
			return compiled{}, err
		}
	}
	all, err := withLibrary(modules)
	if err != nil {
		return compiled{}, err
	}
	compiler := ast.NewCompiler().WithCapabilities(language()).WithDefaultRegoVersion(ast.RegoV1)
	if compiler.Compile(all); compiler.Failed() {
		return compiled{}, explain(compiler.Errors)
	}
	hooks, err := check(modules, compiler)
	if err != nil {
		return compiled{}, err
	}
	entries := make([]string, 0, len(hooks))
	for _, hook := range hooks {
		entries = append(entries, packageName+"/"+string(hook))
	}
	code, err := toWasm(ctx, all, entries)
	if err == nil && schema != nil {
		code, err = settings.Embed(code, schema)
	}
	if err != nil {
		return compiled{}, err
	}
	return compiled{code: code, hooks: hooks, needs: needsOf(modules, compiler)}, nil
}

// toWasm compiles the modules, with an entry point for each rule in entries.
func toWasm(ctx context.Context, modules map[string]*ast.Module, entries []string) ([]byte, error) {
	source := &bundle.Bundle{Data: map[string]any{}}
	source.Manifest.Init()
	source.SetRegoVersion(ast.RegoV1)
	for _, name := range sortedKeys(modules) {
		source.Modules = append(source.Modules, bundle.ModuleFile{URL: name, Path: name, Parsed: modules[name]})
	}
	c := compile.New().
		WithTarget(compile.TargetWasm).
		WithCapabilities(language()).
		WithRegoVersion(ast.RegoV1).
		WithBundle(source).
		WithEntrypoints(entries...).
		WithPruneUnused(true) // remove unused code
	if err := c.Build(ctx); err != nil {
		return nil, fmt.Errorf("compile to WebAssembly: %w", err)
	}
	built := c.Bundle().WasmModules
	if len(built) != 1 {
		return nil, errors.New("compile to WebAssembly: no module was generated")
	}
	return built[0].Raw, nil
}
