package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// Host compiles modules, each once, and holds them while they are used. There
// is one for each ABI.
type Host struct {
	config    Config
	functions map[string]map[string]Function
	cache     *diskCache // nil: none

	// compiling has room for one: a compilation uses every core by itself.
	compiling chan struct{}
	running   sync.WaitGroup // compilations

	lock    sync.Mutex // covers what follows
	modules map[string]*compilation
	closed  bool
}

// compilation is a module that is being compiled or has been. Its fields are
// set before done is closed.
type compilation struct {
	done     chan struct{}
	compiled *compiled
	err      error
	users    int // Modules that are not closed, and callers that wait for one; under Host.lock
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
	h.cache, err = newDiskCache(c.CacheDir)
	return h, err
}

// Load compiles a module, or takes the one that has been compiled from the same
// code. The error is a *Refusal when the module is to blame. The Module is to be
// closed by the caller, and so are its pools before it.
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

// compilation returns the one of a module, of which there is one more user now.
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

// compile is not bound to whoever asked first: others may be waiting too.
func (h *Host) compile(c *compilation, code []byte) {
	defer close(c.done)
	h.compiling <- struct{}{}
	defer func() { <-h.compiling }()
	rewritten, err := h.rewrite(code)
	if err != nil {
		c.err = err
		return
	}
	c.compiled, c.err = h.build(rewritten)
}

// rewrite gives the module its fuel, and refuses what it can't have. There is no
// other way to run one: what can't be rewritten, the engine would not run either.
func (h *Host) rewrite(code []byte) (fuel.Module, error) {
	rewritten, err := fuel.Rewrite(code, fuel.Options{
		Limits:       h.config.Limits,
		DefineMemory: h.config.DefineMemory,
		TakeData:     true, // an instance that is made from an image has no use for it
	})
	if refusal := (*fuel.Refusal)(nil); errors.As(err, &refusal) {
		return fuel.Module{}, &Refusal{Message: refusal.Message}
	}
	if err != nil {
		return fuel.Module{}, fmt.Errorf("rewrite module: %w", err)
	}
	return rewritten, h.checkImports(rewritten.Imports)
}

// release takes one user from a compilation, and frees it with the last one.
// One that failed is forgotten, so that it can be tried again.
func (h *Host) release(digest string, c *compilation) {
	h.lock.Lock()
	defer h.lock.Unlock()
	c.users--
	select {
	case <-c.done:
	default:
		return // whoever asks next, or Close, will find it
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

// Close waits for compilations to end and frees all modules. Their pools must
// have been closed.
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
