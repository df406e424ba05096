// Package wasm runs policies that are WebAssembly modules: the host's side of
// the ABI that package hostabi names, on the sandbox. A module reads a request
// and writes a verdict, and can do nothing else: WASI is there for the sake of
// toolchains, and has no files, no environment, no arguments and no network
// behind it, the request's time for a clock, and the request for a source of
// randomness.
//
// It fetches no modules, chooses no policies, and acts on no verdict.
package wasm

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Config is what all modules have in common.
type Config struct {
	// CacheDir keeps compiled modules between runs; see sandbox.Config.
	CacheDir string
	// Limits bound the modules that are taken in. Zero fields mean the default.
	Limits fuel.Limits
	// CompileTimeout is how long a module may take to compile. Default: 1m.
	CompileTimeout time.Duration
}

// Refusal is a module that is not taken in. Its author is to blame.
type Refusal = sandbox.Refusal

// Limits bound one call of a module.
type Limits = sandbox.Limits

// MaxNamespacedMemory is the maximum of Limits.Memory for the modules of a namespace.
const MaxNamespacedMemory = sandbox.MaxNamespacedMemory

// Engine compiles modules. There is one in a process.
type Engine struct {
	host *sandbox.Host
}

// New returns an engine.
func New(c Config) (*Engine, error) {
	host, err := sandbox.New(sandbox.Config{
		CacheDir:       c.CacheDir,
		Functions:      append(abi(), wasi()...),
		Limits:         c.Limits,
		CompileTimeout: c.CompileTimeout,
	})
	if err != nil {
		return nil, err
	}
	return &Engine{host: host}, nil
}

// Close waits for compilations and frees all modules. Their policies must have
// been closed.
func (e *Engine) Close() { e.host.Close() }

// Module is a module that has been taken in: rewritten to spend fuel, as every
// module is, and compiled.
type Module struct {
	Digest  string         // SHA-256 of the code, in hexadecimal
	Size    int            // of the code, in bytes
	Hooks   []hostabi.Hook // that it answers
	Imports []string       // that it uses, each once: gleaner_v1.request_read …

	loaded *sandbox.Module
}

// Load takes a module in, or finds it to be the same as one that has been. The
// error is a *Refusal when the module is to blame. The caller closes the Module,
// after its policies.
func (e *Engine) Load(ctx context.Context, code []byte) (*Module, error) {
	loaded, err := e.host.Load(ctx, code)
	if err != nil {
		return nil, err
	}
	m := &Module{Digest: loaded.Digest, Size: loaded.Size, loaded: loaded}
	for _, i := range loaded.Imports() {
		if name := i.Module + "." + i.Name; !slices.Contains(m.Imports, name) { // a module may import one thing any number of times
			m.Imports = append(m.Imports, name)
		}
	}
	for _, hook := range hostabi.Hooks() {
		if loaded.Exported(string(hook), nil, nil) {
			m.Hooks = append(m.Hooks, hook)
		}
	}
	if refusal := m.check(); refusal != nil {
		loaded.Close()
		return nil, refusal
	}
	return m, nil
}

// check refuses a module that could never answer.
func (m *Module) check() *Refusal {
	command := false
	for _, e := range m.loaded.Exports() {
		command = command || e.Name == "_start"
		called := e.Name == initialize || slices.Contains(hostabi.Hooks(), hostabi.Hook(e.Name))
		if called && !m.loaded.Exported(e.Name, nil, nil) {
			return &Refusal{Message: "it exports " + e.Name + ", which must be a function without parameters and results"}
		}
	}
	if len(m.Hooks) > 0 {
		return nil
	}
	var names []string
	for _, hook := range hostabi.Hooks() {
		names = append(names, string(hook))
	}
	message := "it exports no hook: it must export a function for each hook that it answers, of " + strings.Join(names, ", ")
	if command {
		message += " (it is a command, and must be a reactor: with Go, build it with -buildmode=c-shared)"
	}
	return &Refusal{Message: message}
}

// Close gives the module back. It is to be called once.
func (m *Module) Close() { m.loaded.Close() }
