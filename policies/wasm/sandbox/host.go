package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
	"github.com/gleaner-dev/gleaner/policies/wasm/sealed"
)

// Host compiles modules, each once, and keeps them while they are used. There is
// one Host for each ABI.
type Host struct {
	config    Config
	functions map[string]map[string]Function
	cache     *sealed.Cache // nil: no cache

	// compiling allows one compilation at a time: each one uses all cores.
	compiling chan struct{}
	running   sync.WaitGroup // compilations

	lock    sync.Mutex // protects the following fields
	modules map[string]*compilation
	closed  bool
}

// compilation is a module that is being compiled or is compiled. Its fields are set
// before done is closed.
type compilation struct {
	done     chan struct{}
	compiled *compiled
	err      error
	users    int // open Modules and waiting callers; protected by Host.lock
}

var errClosed = errors.New("the sandbox is closed")

// New returns a Host.
func New(c Config) (*Host, error) {
	if c.CompileTimeout == 0 {
		c.CompileTimeout = time.Minute
	}
	h := &Host{
		config:    c,
		functions: map[string]map[string]Function{},
		compiling: make(chan struct{}, 1),
		modules:   map[string]*compilation{},
	}
	for _, f := range c.Functions {
		if h.functions[f.Module] == nil {
			h.functions[f.Module] = map[string]Function{}
		}
		h.functions[f.Module][f.Name] = f
	}
	if c.CacheDir == "" {
		return h, nil
	}
	var err error
	// A subfolder, since the configured folder may be a volume that is writable for everyone.
	h.cache, err = sealed.Open(filepath.Join(c.CacheDir, "wasm"))
	return h, err
}

// Load compiles a module, or returns the compiled one with the same code. The error
// is a *Refusal if the module caused it. The caller closes the Module, and its
// pools before it.
func (h *Host) Load(ctx context.Context, code []byte) (*Module, error) {
	sum := sha256.Sum256(code)
	digest := hex.EncodeToString(sum[:])
	c, err := h.compilation(digest, code)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		h.release(digest, c)
		return nil, fmt.Errorf("compile module %s: %w", digest, context.Cause(ctx))
	}
	if c.err != nil {
		h.release(digest, c)
		return nil, c.err
	}
	return &Module{host: h, compilation: c, compiled: c.compiled, Digest: digest, Size: len(code)}, nil
}

// compilation returns the compilation of a module, and increments its users.
func (h *Host) compilation(digest string, code []byte) (*compilation, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.closed {
		return nil, errClosed
	}
	c, ok := h.modules[digest]
	if !ok {
		c = &compilation{done: make(chan struct{})}
		h.modules[digest] = c
		h.running.Go(func() { h.compile(c, code) })
	}
	c.users++
	return c, nil
}

// compile does not depend on the context of the first caller: others may be waiting
// as well.
func (h *Host) compile(c *compilation, code []byte) {
	defer close(c.done)
	h.compiling <- struct{}{}
	defer func() { <-h.compiling }()
	rewritten, err := h.instrument(code)
	if err != nil {
		c.err = err
		return
	}
	c.compiled, c.err = h.compileCached(rewritten)
}

// instrument instruments the module with fuel, and rejects unsupported features.
// Modules cannot run in any other way: what cannot be rewritten, the engine would
// reject as well.
func (h *Host) instrument(code []byte) (fuel.Module, error) {
	rewritten, err := fuel.Rewrite(code, fuel.Options{
		Limits:       h.config.Limits,
		DefineMemory: h.config.DefineMemory,
		ExtractData:  true, // instances that are created from an image do not need it
	})
	if refusal := (*fuel.RejectedError)(nil); errors.As(err, &refusal) {
		return fuel.Module{}, &RejectedError{Message: refusal.Message}
	}
	if err != nil {
		return fuel.Module{}, fmt.Errorf("rewrite module: %w", err)
	}
	return rewritten, h.checkImports(rewritten.Imports)
}

// release decrements the users of a compilation, and frees it with the last one. A
// failed one is removed, so that it can be retried.
func (h *Host) release(digest string, c *compilation) {
	h.lock.Lock()
	defer h.lock.Unlock()
	c.users--
	select {
	case <-c.done:
	default:
		return // the next caller or Close will find it
	}
	if c.users > 0 && c.err == nil {
		return
	}
	if h.modules[digest] == c {
		delete(h.modules, digest)
	}
	if c.users == 0 {
		c.compiled.free()
	}
}

// Close waits for compilations and frees all modules. Their pools must be closed
// before.
func (h *Host) Close() {
	h.lock.Lock()
	h.closed = true
	h.lock.Unlock()
	h.running.Wait()
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, c := range h.modules {
		c.compiled.free()
	}
	clear(h.modules)
}
