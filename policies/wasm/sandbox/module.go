package sandbox

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
	"github.com/gleaner-dev/gleaner/policies/wasm/sealed"
)

// Module is a compiled module.
type Module struct {
	Digest string // SHA-256 of the original code, in hexadecimal
	Size   int    // of that code, in bytes

	host        *Host
	compilation *compilation
	compiled    *compiled
}

// compiled is a compiled module, with an engine of its own, so that it can be freed
// separately.
type compiled struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	module  wazero.CompiledModule
	fuel    fuel.Module // without its code
}

// Exports returns the exports of the module.
func (m *Module) Exports() []fuel.Export { return m.compiled.fuel.Exports }

// Imports returns the imports of the module.
func (m *Module) Imports() []fuel.Import { return m.compiled.fuel.Imports }

// ExportsFunction reports whether the module exports a function with this name, parameters
// and results.
func (m *Module) ExportsFunction(name string, params, results []fuel.ValueType) bool {
	return slices.ContainsFunc(m.Exports(), func(e fuel.Export) bool {
		return e.Name == name && e.Kind == fuel.KindFunction &&
			slices.Equal(e.Params, params) && slices.Equal(e.Results, results)
	})
}

// Close frees the module. It must be called once.
func (m *Module) Close() { m.host.release(m.Digest, m.compilation) }

// checkImports rejects unknown imports. It reports all of them, so that the author
// can fix them at once.
func (h *Host) checkImports(imports []fuel.Import) error {
	var missing []string
	for _, i := range imports {
		if problem := h.importProblem(i); problem != "" && !slices.Contains(missing, problem) {
			missing = append(missing, problem)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	const most = 20
	if more := len(missing) - most; more > 0 {
		missing = append(missing[:most], fmt.Sprintf("and %d more", more))
	}
	return &RejectedError{Message: "unknown imports: " + strings.Join(missing, ", ")}
}

// importProblem describes what is wrong with an import, or returns "".
func (h *Host) importProblem(i fuel.Import) string {
	name := fmt.Sprintf("%s.%s", truncate(i.Module), truncate(i.Name))
	f, ok := h.functions[i.Module][i.Name]
	switch {
	case i.Kind != fuel.KindFunction:
		return fmt.Sprintf("the %s %s", i.Kind, name)
	case !ok:
		return name
	case !slices.Equal(bytesOf(i.Params), f.Params) || !slices.Equal(bytesOf(i.Results), f.Results):
		return fmt.Sprintf("%s with the type %s (its type is %s)", name,
			signature(bytesOf(i.Params), bytesOf(i.Results)), signature(f.Params, f.Results))
	default:
		return ""
	}
}

func bytesOf(types []fuel.ValueType) []api.ValueType {
	var all []api.ValueType
	for _, t := range types {
		all = append(all, api.ValueType(t))
	}
	return all
}

func signature(params, results []api.ValueType) string {
	list := func(types []api.ValueType) string {
		var names []string
		for _, t := range types {
			names = append(names, fuel.ValueType(t).String())
		}
		return "(" + strings.Join(names, ", ") + ")"
	}
	return list(params) + " → " + list(results)
}

// truncate shortens a name from a module.
func truncate(name string) string {
	const most = 100
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// compileCached compiles the rewritten code, or loads it from the cache.
func (h *Host) compileCached(rewritten fuel.Module) (*compiled, error) {
	if h.cache == nil {
		return h.compileIn("", rewritten)
	}
	key := sealed.Key(rewritten.Code)
	if folder, ok := h.cache.Lookup(key); ok {
		if c, err := h.compileIn(folder, rewritten); err == nil {
			return c, nil
		}
		h.cache.Remove(key) // sealed, but rejected by the engine
	}
	folder, err := h.cache.Create()
	if err != nil {
		return h.compileIn("", rewritten) // a full disk only costs time
	}
	c, err := h.compileIn(folder, rewritten)
	h.cache.Commit(folder, key, err == nil)
	return c, err
}

// compileIn compiles with an engine that uses the folder as its cache.
func (h *Host) compileIn(folder string, rewritten fuel.Module) (*compiled, error) {
	c := &compiled{cache: wazero.NewCompilationCache(), fuel: rewritten}
	if folder != "" {
		var err error
		if c.cache, err = wazero.NewCompilationCacheWithDir(folder); err != nil {
			return nil, fmt.Errorf("open cache: %w", err)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), h.config.CompileTimeout)
	defer stop()
	c.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().
		WithCoreFeatures(api.CoreFeaturesV2).
		WithDebugInfoEnabled(false).
		WithCompilationCache(c.cache))
	if err := h.registerFunctions(ctx, c.runtime); err != nil {
		c.free()
		return nil, err
	}
	// With one worker, the engine does not check the context.
	workers := experimental.WithCompilationWorkers(ctx, max(2, runtime.GOMAXPROCS(0)))
	var err error
	if c.module, err = c.runtime.CompileModule(workers, rewritten.Code); err != nil {
		c.free()
		return nil, h.explain(ctx, err)
	}
	c.fuel.Code = nil
	return c, nil
}

// explain converts an error of the engine. The rewriter has parsed the module, so
// what remains is ill-typed code, or too much of it.
func (h *Host) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &RejectedError{Message: fmt.Sprintf("it takes longer to compile than %s", h.config.CompileTimeout)}
	}
	return &RejectedError{Message: "it is not a valid module: " + err.Error()}
}

// registerFunctions registers the host's functions with the engine.
func (h *Host) registerFunctions(ctx context.Context, r wazero.Runtime) error {
	for module, functions := range h.functions {
		b := r.NewHostModuleBuilder(module)
		for name, f := range functions {
			b.NewFunctionBuilder().WithGoModuleFunction(f.goFunction(), f.Params, f.Results).Export(name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("register functions of %s: %w", module, err)
		}
	}
	return nil
}

// free may be called on nil.
func (c *compiled) free() {
	if c == nil {
		return
	}
	ctx := context.Background()
	if c.runtime != nil {
		_ = c.runtime.Close(ctx) // it only frees memory
	}
	_ = c.cache.Close(ctx)
}
