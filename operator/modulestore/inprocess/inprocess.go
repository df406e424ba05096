// Package inprocess compiles and evaluates modules in the process that it is called in.
//
// It fetches no modules, and remembers no failures.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

// Compiler compiles WebAssembly and Rego. Those of namespaces have engines of their own: an
// engine compiles one module at a time.
type Compiler struct{ cluster, tenants engines }

var _ modulestore.Compiler = (*Compiler)(nil)

type engines struct {
	wasm *wasm.Engine
	rego *rego.Engine
}

// New returns a Compiler that keeps compiled modules in a folder between runs; empty:
// nothing is kept.
func New(cacheDir string) (*Compiler, error) {
	cluster, err := newEngines(cacheDir, "")
	if err != nil {
		return nil, err
	}
	tenants, err := newEngines(cacheDir, "-tenants")
	if err != nil {
		cluster.close()
		return nil, err
	}
	return &Compiler{cluster: cluster, tenants: tenants}, nil
}

func newEngines(cacheDir, suffix string) (engines, error) {
	folder := func(name string) string {
		if cacheDir == "" {
			return ""
		}
		return filepath.Join(cacheDir, name+suffix)
	}
	w, err := wasm.New(wasm.Config{CacheDir: folder("wasm")})
	if err != nil {
		return engines{}, fmt.Errorf("open the engine for WebAssembly: %w", err)
	}
	r, err := rego.New(rego.Config{CacheDir: folder("rego")})
	if err != nil {
		w.Close()
		return engines{}, fmt.Errorf("open the engine for Rego: %w", err)
	}
	return engines{wasm: w, rego: r}, nil
}

func (e engines) close() {
	e.wasm.Close()
	e.rego.Close()
}

// Close frees the engines. All modules must have been closed.
func (c *Compiler) Close() {
	c.cluster.close()
	c.tenants.close()
}

// Compile implements modulestore.Compiler.
func (c *Compiler) Compile(ctx context.Context, r modulestore.CompileRequest) (modulestore.Compiled, error) {
	e := c.tenants
	if r.Namespace == "" {
		e = c.cluster
	}
	compile := e.compileWasm
	if r.Engine == v1alpha1.EngineRego {
		compile = e.compileRego
	}
	compiled, err := compile(ctx, r)
	if err != nil {
		return nil, blame(err)
	}
	return compiled, nil
}

// blame makes a CompileError of what is the author's fault.
func blame(err error) error {
	var (
		refusal *wasm.Refusal
		source  *rego.Error
		fault   *policies.Fault
	)
	switch {
	case errors.As(err, &source):
		return &modulestore.CompileError{Message: source.Message}
	case errors.As(err, &refusal):
		return &modulestore.CompileError{Message: refusal.Message}
	case errors.As(err, &fault):
		return &modulestore.CompileError{Message: fault.Message}
	default:
		return err
	}
}

func (e engines) compileWasm(ctx context.Context, r modulestore.CompileRequest) (modulestore.Compiled, error) {
	if len(r.Files) != 1 {
		return nil, &wasm.Refusal{Message: fmt.Sprintf("it has %d files, and must have one", len(r.Files))}
	}
	m, err := e.wasm.Load(ctx, r.Files[0].Data)
	if err != nil {
		return nil, err
	}
	return wasmModule{m}, nil
}

func (e engines) compileRego(ctx context.Context, r modulestore.CompileRequest) (modulestore.Compiled, error) {
	m, err := e.rego.Load(ctx, texts(r.Name, r.Files))
	if err != nil {
		return nil, err
	}
	return regoModule{m}, nil
}

// texts are the files of a module in Rego. One without a name has the module's.
func texts(name string, files []source.File) []rego.File {
	var list []rego.File
	for _, f := range files {
		if f.Name == "" {
			f.Name = name
		}
		list = append(list, rego.File{Name: f.Name, Text: string(f.Data)})
	}
	return list
}

type (
	wasmModule struct{ module *wasm.Module }
	regoModule struct{ module *rego.Module }

	wasmInstance struct{ *wasm.Policy }
	regoInstance struct{ *rego.Policy }
)

// Hooks implements modulestore.Compiled.
func (m wasmModule) Hooks() []hostabi.Hook { return m.module.Hooks }

// Hooks implements modulestore.Compiled.
func (m regoModule) Hooks() []hostabi.Hook { return m.module.Hooks }

// Start implements modulestore.Compiled.
func (m wasmModule) Start(ctx context.Context, o modulestore.StartOptions) (modulestore.Instance, error) {
	p, err := wasm.NewPolicy(ctx, m.module, wasm.Options{Name: o.Policy, Limits: wasm.Limits(o.Limits)})
	if err != nil {
		return nil, err
	}
	return wasmInstance{p}, nil
}

// Start implements modulestore.Compiled.
func (m regoModule) Start(ctx context.Context, o modulestore.StartOptions) (modulestore.Instance, error) {
	p, err := rego.NewPolicy(ctx, m.module, rego.Options{Name: o.Policy, Limits: rego.Limits(o.Limits)})
	if err != nil {
		return nil, err
	}
	return regoInstance{p}, nil
}

// Close implements modulestore.Compiled.
func (m wasmModule) Close() { m.module.Close() }

// Close implements modulestore.Compiled.
func (m regoModule) Close() { m.module.Close() }

// Ask implements policies.Asker.
func (i wasmInstance) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	answer, err := i.Policy.Ask(ctx, r)
	var log strings.Builder
	for _, line := range answer.Log.Lines {
		log.WriteString(line.Text + "\n")
	}
	return policies.Answer{Verdict: answer.Verdict, Fuel: answer.Fuel, Log: log.String()}, err
}

// Ask implements policies.Asker.
func (i regoInstance) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	answer, err := i.Policy.Ask(ctx, r)
	return policies.Answer{Verdict: answer.Verdict, Fuel: answer.Fuel}, err
}
