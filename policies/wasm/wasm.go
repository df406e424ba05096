// Package wasm evaluates policies that are WebAssembly modules: it implements the
// host's side of the ABI of package hostabi, on the sandbox. A module reads a
// request and writes a verdict, and can do nothing else. WASI is provided for
// toolchains, without files, environment, arguments and network; the clock and the
// randomness are derived from the request.
//
// It does not fetch modules, select policies or act on verdicts.
package wasm

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/settings"
	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Config is the configuration of an engine.
type Config struct {
	// CacheDir keeps compiled modules between runs; see sandbox.Config.
	CacheDir string
	// Limits are the limits for loading modules. Zero fields mean the default.
	Limits fuel.Limits
	// CompileTimeout is the timeout for compiling a module. Default: 1m.
	CompileTimeout time.Duration
}

// RejectedError reports a module that is rejected. The module caused it.
type RejectedError = sandbox.RejectedError

// Limits bound one call of a module.
type Limits = sandbox.Limits

// MaxNamespacedMemory is the maximum of Limits.Memory for the modules of a namespace.
const MaxNamespacedMemory = sandbox.MaxNamespacedMemory

// Engine compiles modules. A process has one.
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

// Close waits for compilations and frees all modules. Their policies must be closed
// before.
func (e *Engine) Close() { e.host.Close() }

// Module is a loaded module: instrumented with fuel, and compiled.
type Module struct {
	Digest  string         // SHA-256 of the code, in hexadecimal
	Size    int            // of the code, in bytes
	Hooks   []hostabi.Hook // that it implements
	Imports []string       // that it uses, without duplicates: gleaner_v1.request_read …
	Needs   policies.Needs // how much of the object it reads, as it declares; NeedsObject: it declares nothing

	// Settings is the schema of its settings; nil: it carries none. With a schema, it has the hook validate.
	Settings *settings.Schema

	loaded *sandbox.Module
}

// Load loads a module, or returns the loaded one with the same code. The error is a
// *Refusal if the module caused it. The caller closes the Module, after its
// policies.
func (e *Engine) Load(ctx context.Context, code []byte) (*Module, error) {
	loaded, err := e.host.Load(ctx, code)
	if err != nil {
		return nil, err
	}
	schema, err := settings.Of(code)
	if err != nil {
		loaded.Close()
		return nil, &RejectedError{Message: err.Error()}
	}
	m := &Module{Digest: loaded.Digest, Size: loaded.Size, Needs: policies.NeedsObject, Settings: schema, loaded: loaded}
	for _, i := range loaded.Imports() {
		if name := i.Module + "." + i.Name; !slices.Contains(m.Imports, name) { // a module may import a function several times
			m.Imports = append(m.Imports, name)
		}
	}
	for _, hook := range hostabi.Hooks() {
		if loaded.ExportsFunction(string(hook), nil, nil) {
			m.Hooks = append(m.Hooks, hook)
		}
	}
	switch {
	case loaded.ExportsFunction(hostabi.ExportNeedsMetadata, nil, nil): // also if it declares both
		m.Needs = policies.NeedsMetadata
	case loaded.ExportsFunction(hostabi.ExportNeedsReference, nil, nil):
		m.Needs = policies.NeedsReference
	}
	if refusal := m.check(); refusal != nil {
		loaded.Close()
		return nil, refusal
	}
	if m.Settings != nil && !slices.Contains(m.Hooks, hostabi.HookValidate) {
		m.Hooks = append(m.Hooks, hostabi.HookValidate)
	}
	return m, nil
}

// check rejects a module that cannot be evaluated.
func (m *Module) check() *RejectedError {
	command := false
	for _, e := range m.loaded.Exports() {
		command = command || e.Name == "_start"
		called := e.Name == initialize || e.Name == hostabi.ExportNeedsMetadata || e.Name == hostabi.ExportNeedsReference || slices.Contains(hostabi.Hooks(), hostabi.Hook(e.Name))
		if called && !m.loaded.ExportsFunction(e.Name, nil, nil) {
			return &RejectedError{Message: "it exports " + e.Name + ", which must be a function without parameters and results"}
		}
	}
	if len(m.Hooks) > 0 {
		return nil
	}
	var names []string
	for _, hook := range hostabi.Hooks() {
		names = append(names, string(hook))
	}
	message := "it exports no hook: it must export a function for each hook that it implements, of " + strings.Join(names, ", ")
	if command {
		message += " (it is a command, and must be a reactor: with Go, build it with -buildmode=c-shared)"
	}
	return &RejectedError{Message: message}
}

// Close frees the module. It must be called once.
func (m *Module) Close() { m.loaded.Close() }
