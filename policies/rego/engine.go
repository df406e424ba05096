package rego

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/settings"
	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Engine compiles policies. A process has one.
type Engine struct {
	host  *sandbox.Host
	cache compiledCache

	// compiling limits compilation to one policy at a time, since OPA's compiler
	// has no resource limits.
	compiling      chan struct{}
	compileTimeout time.Duration
}

// Config is the configuration of an engine.
type Config struct {
	// CacheDir keeps compiled modules between runs; see sandbox.Config.
	CacheDir string

	// CompileTimeout is the timeout for compiling a module. Default: 1m.
	CompileTimeout time.Duration
}

// New returns an engine. The caller closes it.
func New(c Config) (*Engine, error) {
	host, err := sandbox.New(sandbox.Config{
		CacheDir:     c.CacheDir,
		Functions:    functions(),
		DefineMemory: true, // modules of OPA's compiler import it
	})
	if err != nil {
		return nil, fmt.Errorf("open sandbox: %w", err)
	}
	cache, err := openCache(c.CacheDir)
	if err != nil {
		host.Close()
		return nil, err
	}
	if c.CompileTimeout == 0 {
		c.CompileTimeout = time.Minute
	}
	return &Engine{host: host, cache: cache, compileTimeout: c.CompileTimeout, compiling: make(chan struct{}, 1)}, nil
}

// Close frees all resources. Modules and policies must be closed before.
func (e *Engine) Close() { e.host.Close() }

// Module is a compiled policy.
type Module struct {
	Digest   string         // of the files, as returned by Digest
	Hooks    []hostabi.Hook // that it implements
	Builtins []string       // that the host implements for it, sorted
	Size     int            // bytes of WebAssembly
	Needs    policies.Needs // how much of the object the rules read

	// Settings is the schema of its settings; nil: it has none. With a schema, it has the hook validate.
	Settings *settings.Schema

	loaded *sandbox.Module
	names  builtinNames
	heap   uint32 // address at which the free memory of a new instance starts
}

// Load compiles a policy. The error is an *Error if the policy caused it. The
// caller closes the Module, after its policies.
func (e *Engine) Load(ctx context.Context, files []File) (*Module, error) {
	c, err := e.Compile(ctx, files)
	if err != nil {
		return nil, err
	}
	return e.LoadCompiled(ctx, c)
}

// Compiled is a policy in WebAssembly, which can be loaded elsewhere without OPA's
// compiler.
type Compiled struct {
	Digest string         // of the files, as returned by Digest
	Code   []byte         // WebAssembly
	Hooks  []hostabi.Hook // by entry point
	Needs  policies.Needs // how much of the object the rules read
}

// Compile compiles a policy to WebAssembly. The error is an *Error if the policy
// caused it.
func (e *Engine) Compile(ctx context.Context, files []File) (Compiled, error) {
	c, ok := e.cache.get(files)
	if !ok {
		var err error
		if c, err = e.compile(ctx, files); err != nil {
			return Compiled{}, err
		}
		e.cache.put(files, c)
	}
	return Compiled{Digest: Digest(files), Code: c.code, Hooks: c.hooks, Needs: c.needs}, nil
}

// LoadCompiled loads the result of Compile. The error is an *Error if the policy
// caused it. The caller closes the Module, after its policies.
func (e *Engine) LoadCompiled(ctx context.Context, c Compiled) (*Module, error) {
	schema, err := settings.Of(c.Code)
	if err != nil {
		return nil, &Error{Message: err.Error()}
	}
	loaded, err := e.host.Load(ctx, c.Code)
	if err != nil {
		return nil, blame(err)
	}
	m := &Module{Digest: c.Digest, Hooks: c.Hooks, Size: len(c.Code), Needs: c.Needs, Settings: schema, loaded: loaded}
	if err := m.inspect(ctx); err != nil {
		loaded.Close()
		return nil, blame(err)
	}
	return m, nil
}

// compile compiles a policy. OPA's compiler can't be interrupted: after the timeout, or once
// the context is done, it continues without its result, and the next one waits for it.
func (e *Engine) compile(ctx context.Context, files []File) (compiled, error) {
	select {
	case e.compiling <- struct{}{}:
	case <-ctx.Done():
		return compiled{}, fmt.Errorf("wait for compiler: %w", context.Cause(ctx))
	}
	type result struct {
		compiled
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-e.compiling }()
		c, err := compileFiles(ctx, files)
		done <- result{c, err}
	}()
	timeout := time.NewTimer(e.compileTimeout)
	defer timeout.Stop()
	select {
	case r := <-done:
		return r.compiled, r.err
	case <-timeout.C:
		return compiled{}, &Error{Message: fmt.Sprintf("%s: it takes longer to compile than %s: write it shorter, or with fewer types of values in one rule",
			namesOf(files), e.compileTimeout)}
	case <-ctx.Done():
		return compiled{}, fmt.Errorf("compile: %w", context.Cause(ctx))
	}
}

// namesOf returns the names of files.
func namesOf(files []File) string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// blame converts an error of the sandbox to an Error. A source that compiles gives
// a module that runs, unless it is too large.
func blame(err error) error {
	refusal, stopped := (*sandbox.RejectedError)(nil), (*sandbox.TrapError)(nil)
	switch {
	case errors.As(err, &refusal):
		return &Error{Message: "compiled module: " + refusal.Message}
	case errors.As(err, &stopped):
		return &Error{Message: "start compiled module: " + stopped.Error()}
	}
	return err
}

// inspect reads from the module itself where its free memory starts, and its built-ins. The
// source has been checked before, so a forbidden one is a bug in this package, and the
// policy is rejected.
func (m *Module) inspect(ctx context.Context) error {
	for _, name := range []string{exportBuiltins, exportMalloc, exportHeap, exportEval, exportParse, exportDump, exportDumpJSON} {
		if !slices.ContainsFunc(m.loaded.Exports(), func(e fuel.Export) bool { return e.Name == name && len(e.Results) == 1 }) {
			return fmt.Errorf("load module: it does not export %s", name)
		}
	}
	pool, err := m.loaded.NewPool(ctx, sandbox.PoolOptions{Instances: 1})
	if err != nil {
		return fmt.Errorf("start module: %w", err)
	}
	defer pool.Close()
	_, err = pool.Run(ctx, func(ctx context.Context, in *sandbox.Instance) (err error) {
		if m.heap, err = (guest{in}).call(ctx, exportHeap); err != nil { // before anything is allocated
			return fmt.Errorf("read the start of free memory: %w", err)
		}
		if m.names, err = (guest{in}).builtinNames(ctx); err != nil {
			return fmt.Errorf("read built-ins: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.Builtins = slices.Sorted(maps.Values(m.names))
	for _, name := range m.Builtins {
		if _, ok := allowed[name]; !ok {
			return &Error{Message: fmt.Sprintf("%s is not allowed", name)}
		}
	}
	return nil
}

// Close frees the module. It must be called once.
func (m *Module) Close() { m.loaded.Close() }
