package modules

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

// lastCalls is how long what has been replaced is kept for those that are using
// it. It is longer than the loop gives one object.
const lastCalls = 5 * time.Minute

// engines compile modules, and keep them for as long as a policy uses them.
type engines struct {
	wasm *wasm.Engine
	rego *rego.Engine

	mu       sync.Mutex           // covers what follows
	compiled map[string]*compiled // by engine and digest
	askers   map[string]*asker    // by policy, module and limits
	closing  sync.WaitGroup
	closed   chan struct{}
}

// compiled is a module that can be asked.
type compiled struct {
	engine v1alpha1.Engine
	digest string
	hooks  []hostabi.Hook
	start  func(ctx context.Context, name string, limits wasm.Limits) (policies.Asker, func(), error)
	close  func()
}

// asker is a policy's own instances of a module.
type asker struct {
	policies.Asker
	module *compiled
	close  func()
}

func newEngines(cacheDir string) (*engines, error) {
	folder := func(name string) string {
		if cacheDir == "" {
			return ""
		}
		return filepath.Join(cacheDir, name)
	}
	w, err := wasm.New(wasm.Config{CacheDir: folder("wasm")})
	if err != nil {
		return nil, fmt.Errorf("open the engine for WebAssembly: %w", err)
	}
	r, err := rego.New(rego.Config{CacheDir: folder("rego")})
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("open the engine for Rego: %w", err)
	}
	return &engines{wasm: w, rego: r, compiled: map[string]*compiled{}, askers: map[string]*asker{}, closed: make(chan struct{})}, nil
}

// compile returns the module of these bytes. One that fails is compiled anew each
// time, which ends sooner than success. The error is for the author.
func (e *engines) compile(ctx context.Context, engine v1alpha1.Engine, name string, fetched source.Fetched) (*compiled, error) {
	key := string(engine) + " " + fetched.Digest
	e.mu.Lock()
	c, ok := e.compiled[key]
	e.mu.Unlock()
	if ok {
		return c, nil
	}
	var err error
	if engine == v1alpha1.EngineRego {
		c, err = e.compileRego(ctx, name, fetched.Files)
	} else {
		c, err = e.compileWasm(ctx, fetched.Files)
	}
	if err != nil {
		return nil, err
	}
	c.digest = fetched.Digest
	e.mu.Lock()
	defer e.mu.Unlock()
	if first, ok := e.compiled[key]; ok { // somebody else was as fast
		c.close()
		return first, nil
	}
	e.compiled[key] = c
	return c, nil
}

func (e *engines) compileWasm(ctx context.Context, files []source.File) (*compiled, error) {
	if len(files) != 1 {
		return nil, fmt.Errorf("it has %d files", len(files))
	}
	m, err := e.wasm.Load(ctx, files[0].Data)
	if err != nil {
		return nil, err
	}
	return &compiled{engine: v1alpha1.EngineWasm, hooks: m.Hooks, close: m.Close,
		start: func(ctx context.Context, name string, limits wasm.Limits) (policies.Asker, func(), error) {
			p, err := wasm.NewPolicy(ctx, m, wasm.Options{Name: name, Limits: limits})
			if err != nil {
				return nil, nil, err
			}
			return wasmAsker{p}, p.Close, nil
		}}, nil
}

func (e *engines) compileRego(ctx context.Context, name string, files []source.File) (*compiled, error) {
	var texts []rego.File
	for _, f := range files {
		if f.Name == "" {
			f.Name = name
		}
		texts = append(texts, rego.File{Name: f.Name, Text: string(f.Data)})
	}
	m, err := e.rego.Load(ctx, texts)
	if err != nil {
		return nil, err
	}
	return &compiled{engine: v1alpha1.EngineRego, hooks: m.Hooks, close: m.Close,
		start: func(ctx context.Context, name string, limits wasm.Limits) (policies.Asker, func(), error) {
			p, err := rego.NewPolicy(ctx, m, rego.Options{Name: name, Limits: limits})
			if err != nil {
				return nil, nil, err
			}
			return regoAsker{p}, p.Close, nil
		}}, nil
}

// asker returns the instances of a module that a policy or finalizer has to itself,
// and what they are kept by.
func (e *engines) asker(ctx context.Context, s *asking, m *moduleState) (policies.Asker, string, error) {
	limits := limitsOf(m.spec.Limits)
	if m.key.Namespace != "" { // one may have been stored with more, before that was refused
		limits.Memory = min(limits.Memory, wasm.MaxNamespacedMemory)
	}
	id := fmt.Sprintf("%s %s %s %v", s.object.GetUID(), m.compiled.engine, m.compiled.digest, limits)
	e.mu.Lock()
	a, ok := e.askers[id]
	e.mu.Unlock()
	if ok {
		return a, id, nil
	}
	started, closing, err := m.compiled.start(ctx, s.policy.String(), limits)
	if err != nil {
		return nil, id, err
	}
	a = &asker{Asker: started, module: m.compiled, close: closing}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.askers[id] = a
	return a, id, nil
}

func limitsOf(l *v1alpha1.Limits) (limits wasm.Limits) {
	if l == nil {
		return limits
	}
	if l.Fuel != nil {
		limits.Fuel = *l.Fuel
	}
	if l.Timeout != nil {
		limits.Timeout = l.Timeout.Duration
	}
	if l.Memory != nil {
		limits.Memory = l.Memory.Value()
	}
	return limits
}

// retire frees what no policy uses any more, once the last calls are over.
func (e *engines) retire(inUse map[string]struct{}, modules map[string]*moduleState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	wanted := map[*compiled]bool{}
	for _, m := range modules {
		wanted[m.compiled] = true
	}
	var askers []*asker
	for id, a := range e.askers {
		if _, used := inUse[id]; !used {
			askers = append(askers, a)
			delete(e.askers, id)
		} else {
			wanted[a.module] = true
		}
	}
	var unused []*compiled
	for key, c := range e.compiled {
		if !wanted[c] {
			unused = append(unused, c)
			delete(e.compiled, key)
		}
	}
	if len(askers)+len(unused) == 0 {
		return
	}
	e.closing.Go(func() {
		timer := time.NewTimer(lastCalls)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-e.closed:
		}
		free(askers, unused)
	})
}

// free closes askers before the modules that they are of.
func free(askers []*asker, modules []*compiled) {
	for _, a := range askers {
		a.close()
	}
	for _, c := range modules {
		c.close()
	}
}

// close frees everything. Nobody may ask any more.
func (e *engines) close() {
	close(e.closed)
	e.closing.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	var askers []*asker
	for _, a := range e.askers {
		askers = append(askers, a)
	}
	var modules []*compiled
	for _, c := range e.compiled {
		modules = append(modules, c)
	}
	free(askers, modules)
	e.wasm.Close()
	e.rego.Close()
}

// blames reports whether a failure to compile is the author's, and what to tell.
func blames(err error) (string, bool) {
	var (
		refusal *wasm.Refusal
		source  *rego.Error
		fault   *policies.Fault
	)
	switch {
	case errors.As(err, &source):
		return source.Message, true
	case errors.As(err, &refusal):
		return refusal.Message, true
	case errors.As(err, &fault):
		return fault.Message, true
	default:
		return err.Error(), false
	}
}

// wasmAsker, regoAsker and fixedAsker say what an answer took in the same words.
type (
	wasmAsker  struct{ *wasm.Policy }
	regoAsker  struct{ *rego.Policy }
	fixedAsker struct{ *fixed.Policy }
)

// Ask implements policies.Asker.
func (a wasmAsker) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	answer, err := a.Policy.Ask(ctx, r)
	var log strings.Builder
	for _, line := range answer.Log.Lines {
		log.WriteString(line.Text + "\n")
	}
	return policies.Answer{Verdict: answer.Verdict, Fuel: answer.Fuel, Log: log.String()}, err
}

// Ask implements policies.Asker.
func (a regoAsker) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	answer, err := a.Policy.Ask(ctx, r)
	return policies.Answer{Verdict: answer.Verdict, Fuel: answer.Fuel}, err
}

// Ask implements policies.Asker.
func (a fixedAsker) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	verdict, err := a.Evaluate(ctx, r)
	return policies.Answer{Verdict: verdict}, err
}
