package rego

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Engine compiles policies. There is one in a process.
type Engine struct {
	host *sandbox.Host

	// compiling has room for one: OPA's compiler takes no limits, so no more than
	// one policy at a time may make the most of that.
	compiling chan struct{}
}

// Config is what all policies have in common.
type Config struct {
	// CacheDir keeps compiled modules between runs; see sandbox.Config.
	CacheDir string
}

// New returns an engine, which is to be closed.
func New(c Config) (*Engine, error) {
	host, err := sandbox.New(sandbox.Config{
		CacheDir:     c.CacheDir,
		Functions:    functions(),
		DefineMemory: true, // OPA's compiler imports it
	})
	if err != nil {
		return nil, fmt.Errorf("open the sandbox: %w", err)
	}
	return &Engine{host: host, compiling: make(chan struct{}, 1)}, nil
}

// Close frees everything. Modules and policies are to be closed before.
func (e *Engine) Close() { e.host.Close() }

// Module is a policy's source, compiled.
type Module struct {
	Digest   string         // of the files, as Digest gives it
	Hooks    []hostabi.Hook // that it answers
	Builtins []string       // that it leaves to the host, sorted
	Size     int            // bytes of WebAssembly

	loaded *sandbox.Module
	names  builtinNames
}

// Load compiles a policy. The error is an *Error when its author is to blame. The
// Module is to be closed by the caller, after its policies.
func (e *Engine) Load(ctx context.Context, files []File) (*Module, error) {
	c, err := e.Compile(ctx, files)
	if err != nil {
		return nil, err
	}
	return e.LoadCompiled(ctx, c)
}

// Compiled is a policy as WebAssembly, which can be loaded elsewhere without OPA's compiler.
type Compiled struct {
	Digest string         // of the files, as Digest gives it
	Code   []byte         // WebAssembly
	Hooks  []hostabi.Hook // by entry point
}

// Compile compiles a policy to WebAssembly. The error is an *Error when its author is to blame.
func (e *Engine) Compile(ctx context.Context, files []File) (Compiled, error) {
	c, err := e.compile(ctx, files)
	if err != nil {
		return Compiled{}, err
	}
	return Compiled{Digest: Digest(files), Code: c.code, Hooks: c.hooks}, nil
}

// LoadCompiled loads what Compile returned. The error is an *Error when the author is to
// blame. The Module is to be closed by the caller, after its policies.
func (e *Engine) LoadCompiled(ctx context.Context, c Compiled) (*Module, error) {
	loaded, err := e.host.Load(ctx, c.Code)
	if err != nil {
		return nil, blame(err)
	}
	m := &Module{Digest: c.Digest, Hooks: c.Hooks, Size: len(c.Code), loaded: loaded}
	if err := m.readBuiltins(ctx); err != nil {
		loaded.Close()
		return nil, blame(err)
	}
	return m, nil
}

func (e *Engine) compile(ctx context.Context, files []File) (compiled, error) {
	select {
	case e.compiling <- struct{}{}:
		defer func() { <-e.compiling }()
		return compileFiles(ctx, files)
	case <-ctx.Done():
		return compiled{}, fmt.Errorf("wait to compile: %w", context.Cause(ctx))
	}
}

// blame makes an Error of what the sandbox has against a policy. A source that
// compiles gives a module that runs, unless it is too large for one.
func blame(err error) error {
	refusal, stopped := (*sandbox.Refusal)(nil), (*sandbox.Stopped)(nil)
	switch {
	case errors.As(err, &refusal):
		return &Error{Message: "as a module, " + refusal.Message}
	case errors.As(err, &stopped):
		return &Error{Message: "as a module, before it was asked anything, " + stopped.Error()}
	}
	return err
}

// readBuiltins asks the module itself. The source has been checked before, so one
// that is not allowed is a mistake of this package, and the policy is not run.
func (m *Module) readBuiltins(ctx context.Context) error {
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
		m.names, err = guest{in}.builtinNames(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("ask for built-ins: %w", err)
	}
	m.Builtins = slices.Sorted(maps.Values(m.names))
	for _, name := range m.Builtins {
		if _, ok := allowed[name]; !ok {
			return &Error{Message: fmt.Sprintf("%s may not be used", name)}
		}
	}
	return nil
}

// Close gives the module back. It is to be called once.
func (m *Module) Close() { m.loaded.Close() }
