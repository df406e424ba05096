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
)

// Module is a compiled module.
type Module struct {
	Digest string // SHA-256 of the code as it was given, in hexadecimal
	Size   int    // of that code, in bytes

	host        *Host
	compilation *compilation
	compiled    *compiled
}

// compiled is a module in the engine's hands, with an engine of its own, so that
// it can be freed by itself.
type compiled struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	module  wazero.CompiledModule
	fuel    fuel.Module // without its code
}

// Exports are what the module offers.
func (m *Module) Exports() []fuel.Export { return m.compiled.fuel.Exports }

// Imports are what the module uses of what it may import.
func (m *Module) Imports() []fuel.Import { return m.compiled.fuel.Imports }

// Exported tells whether the module exports a function of that name, parameters
// and results.
func (m *Module) Exported(name string, params, results []fuel.ValueType) bool {
	return slices.ContainsFunc(m.Exports(), func(e fuel.Export) bool {
		return e.Name == name && e.Kind == fuel.KindFunction &&
			slices.Equal(e.Params, params) && slices.Equal(e.Results, results)
	})
}

// Close gives the module back. It is to be called once.
func (m *Module) Close() { m.host.release(m.Digest, m.compilation) }

// checkImports refuses what the host does not offer: all of it at once, since
// an author who is told of one at a time has to try as often.
func (h *Host) checkImports(imports []fuel.Import) error {
	var missing []string
	for _, i := range imports {
		if problem := h.problem(i); problem != "" && !slices.Contains(missing, problem) {
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
	return &Refusal{Message: "it imports what there is not: " + strings.Join(missing, ", ")}
}

// problem says what is wrong with an import, "" if nothing is.
func (h *Host) problem(i fuel.Import) string {
	name := fmt.Sprintf("%s.%s", clip(i.Module), clip(i.Name))
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

// clip shortens a name that comes from a module.
func clip(name string) string {
	const most = 100
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// build compiles the rewritten code, or finds it in the cache.
func (h *Host) build(rewritten fuel.Module) (*compiled, error) {
	if h.cache == nil {
		return h.compileIn("", rewritten)
	}
	key := cacheKey(rewritten.Code)
	if folder, ok := h.cache.find(key); ok {
		if c, err := h.compileIn(folder, rewritten); err == nil {
			return c, nil
		}
		h.cache.drop(key) // sealed, and yet of no use to the engine
	}
	folder, err := h.cache.begin()
	if err != nil {
		return h.compileIn("", rewritten) // a disk that is full costs time, no more
	}
	c, err := h.compileIn(folder, rewritten)
	h.cache.end(folder, key, err == nil)
	return c, err
}

// compileIn compiles with an engine whose cache is the folder.
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
	if err := h.offer(ctx, c.runtime); err != nil {
		c.free()
		return nil, err
	}
	// With one worker, the engine does not look at the context.
	workers := experimental.WithCompilationWorkers(ctx, max(2, runtime.GOMAXPROCS(0)))
	var err error
	if c.module, err = c.runtime.CompileModule(workers, rewritten.Code); err != nil {
		c.free()
		return nil, h.explain(ctx, err)
	}
	c.fuel.Code = nil
	return c, nil
}

// explain takes what the engine has against a module. The rewriter has read all
// of it, so what is left is code that is ill typed, or too much of it.
func (h *Host) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Refusal{Message: fmt.Sprintf("it takes longer to compile than %s", h.config.CompileTimeout)}
	}
	return &Refusal{Message: "it is not a valid module: " + err.Error()}
}

// offer makes the host's functions known to the engine.
func (h *Host) offer(ctx context.Context, r wazero.Runtime) error {
	for module, functions := range h.functions {
		b := r.NewHostModuleBuilder(module)
		for name, f := range functions {
			b.NewFunctionBuilder().WithGoModuleFunction(f.guarded(), f.Params, f.Results).Export(name)
		}
		if _, err := b.Instantiate(ctx); err != nil {
			return fmt.Errorf("offer the functions of %s: %w", module, err)
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
