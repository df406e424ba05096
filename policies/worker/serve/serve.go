// Package serve is the worker process: it compiles, loads and runs modules for the
// operator, one request at a time, and answers each on the same connection.
//
// The operator decides what is run, for how long and with how much memory, and
// kills the process when it exceeds its limits. The process never reads a file or
// environment variable on its own.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/policies/worker/wire"
)

// The engines, as v1alpha1.Engine names them.
const (
	EngineRego = "Rego"
	EngineWasm = "Wasm"
)

// compileTimeout of the engines is never reached: the operator ends this process earlier, by
// the processor time that it has used.
const compileTimeout = 24 * time.Hour

// maxLog is the maximum size of the log of one call, in bytes.
const maxLog = 64 << 10

// Server contains what this process has loaded.
type Server struct {
	wasm *wasm.Engine
	rego *rego.Engine

	modules  map[uint32]module
	policies map[uint32]policy
}

// module is a loaded module.
type module struct {
	start func(ctx context.Context, name string, limits wasm.Limits) (policy, wire.Reply, error)
}

// policy evaluates a started policy.
type policy func(ctx context.Context, hook hostabi.Hook, at time.Time, document []byte) (wire.Reply, error)

// New returns a Server. The folder caches compiled modules between runs; empty: no
// cache.
func New(cacheDir string) (*Server, error) {
	s := &Server{modules: map[uint32]module{}, policies: map[uint32]policy{}}
	var err error
	if s.wasm, err = wasm.New(wasm.Config{CacheDir: cacheDir, CompileTimeout: compileTimeout}); err != nil {
		return nil, fmt.Errorf("open the engine for WebAssembly: %w", err)
	}
	if s.rego, err = rego.New(rego.Config{CacheDir: cacheDir, CompileTimeout: compileTimeout}); err != nil {
		return nil, fmt.Errorf("open the engine for Rego: %w", err)
	}
	return s, nil
}

// Serve handles requests until the connection ends, which is not an error.
func (s *Server) Serve(ctx context.Context, conn io.ReadWriter) error {
	var in wire.Reader
	var out []byte
	for {
		frame, err := in.Read(conn, wire.MaxRequest)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read request: %w", err)
		}
		reply := s.handle(ctx, frame)
		if out, err = wire.Write(conn, frame.ID, &reply, out); err != nil {
			return fmt.Errorf("write reply: %w", err)
		}
	}
}

// handle handles a request.
func (s *Server) handle(ctx context.Context, frame wire.Frame) wire.Reply {
	var reply wire.Reply
	var err error
	switch frame.Kind {
	case wire.KindEvaluate:
		var m wire.Evaluate
		if err = frame.Decode(&m); err == nil {
			reply, err = s.evaluate(ctx, m)
		}
	case wire.KindCompile:
		var m wire.Compile
		if err = frame.Decode(&m); err == nil {
			reply, err = s.compile(ctx, m)
		}
	case wire.KindLoad:
		var m wire.Load
		if err = frame.Decode(&m); err == nil {
			err = s.load(ctx, m)
		}
	case wire.KindStart:
		var m wire.Start
		if err = frame.Decode(&m); err == nil {
			reply, err = s.start(ctx, m)
		}
	default:
		err = fmt.Errorf("%w: kind %d", wire.ErrMalformed, frame.Kind)
	}
	if err != nil {
		return errorReply(reply, err)
	}
	reply.Outcome = wire.Done
	return reply
}

// errorReply sets the outcome of a reply by its error.
func errorReply(reply wire.Reply, err error) wire.Reply {
	var (
		refusal *wasm.RejectedError
		source  *rego.Error
		fault   *policies.Fault
	)
	switch {
	case errors.As(err, &fault):
		reply.Outcome, reply.FaultKind, reply.Message = wire.Faulted, string(fault.Kind), fault.Message
	case errors.As(err, &source):
		reply.Outcome, reply.Message = wire.Rejected, source.Message
	case errors.As(err, &refusal):
		reply.Outcome, reply.Message = wire.Rejected, refusal.Message
	default:
		reply.Outcome, reply.Message = wire.Failed, err.Error()
	}
	return reply
}

// compile compiles a module without keeping it.
func (s *Server) compile(ctx context.Context, m wire.Compile) (wire.Reply, error) {
	if m.Engine == EngineRego {
		return s.compileRego(ctx, m.Files)
	}
	if len(m.Files) != 1 {
		return wire.Reply{}, &wasm.RejectedError{Message: fmt.Sprintf("it has %d files, and must be one", len(m.Files))}
	}
	code := m.Files[0].Text
	loaded, err := s.wasm.Load(ctx, code)
	if err != nil {
		return wire.Reply{}, err
	}
	defer loaded.Close()
	// The operator has the code already, and does not need it back.
	return wire.Reply{Hooks: names(loaded.Hooks), Imports: loaded.Imports, Needs: string(loaded.Needs), Size: int64(loaded.Size)}, nil
}

func (s *Server) compileRego(ctx context.Context, files []wire.File) (wire.Reply, error) {
	sources := make([]rego.File, 0, len(files))
	for _, f := range files {
		sources = append(sources, rego.File{Name: f.Name, Text: string(f.Text)})
	}
	compiled, err := s.rego.Compile(ctx, sources)
	if err != nil {
		return wire.Reply{}, err
	}
	loaded, err := s.rego.LoadCompiled(ctx, compiled)
	if err != nil {
		return wire.Reply{}, err
	}
	defer loaded.Close()
	return wire.Reply{Hooks: names(loaded.Hooks), Imports: loaded.Builtins, Needs: string(compiled.Needs), Size: int64(loaded.Size), Code: compiled.Code}, nil
}

// load loads a compiled module, until the process ends.
func (s *Server) load(ctx context.Context, m wire.Load) error {
	code := append([]byte(nil), m.Code...) // the frame's memory is used again
	if m.Engine == EngineRego {
		loaded, err := s.rego.LoadCompiled(ctx, rego.Compiled{Digest: m.Digest, Code: code, Hooks: hooks(m.Hooks)})
		if err != nil {
			return err
		}
		s.modules[m.Module] = module{func(ctx context.Context, name string, limits wasm.Limits) (policy, wire.Reply, error) {
			p, err := rego.NewPolicy(ctx, loaded, rego.Options{Name: name, Limits: limits, Instances: 1})
			if err != nil {
				return nil, wire.Reply{}, err
			}
			return evaluateRego(p), wire.Reply{}, nil
		}}
		return nil
	}
	loaded, err := s.wasm.Load(ctx, code)
	if err != nil {
		return err
	}
	s.modules[m.Module] = module{func(ctx context.Context, name string, limits wasm.Limits) (policy, wire.Reply, error) {
		p, err := wasm.NewPolicy(ctx, loaded, wasm.Options{Name: name, Limits: limits, Instances: 1, LogBytes: maxLog})
		if err != nil {
			return nil, wire.Reply{}, err
		}
		return evaluateWasm(p), withLog(wire.Reply{Fuel: p.InitFuel}, p.InitLog), nil
	}}
	return nil
}

func (s *Server) start(ctx context.Context, m wire.Start) (wire.Reply, error) {
	loaded, ok := s.modules[m.Module]
	if !ok {
		return wire.Reply{}, fmt.Errorf("start policy %s: module %d is not loaded", m.Name, m.Module)
	}
	p, reply, err := loaded.start(ctx, m.Name, wasm.Limits{Fuel: m.Fuel, Memory: m.Memory, Timeout: time.Duration(m.Timeout)})
	if err == nil {
		s.policies[m.Policy] = p
	}
	return reply, err
}

func (s *Server) evaluate(ctx context.Context, m wire.Evaluate) (wire.Reply, error) {
	p, ok := s.policies[m.Policy]
	if !ok {
		return wire.Reply{}, fmt.Errorf("evaluate policy: policy %d is not started", m.Policy)
	}
	var at time.Time
	if m.Time != 0 {
		at = time.Unix(0, m.Time).UTC()
	}
	return p(ctx, hostabi.Hook(m.Hook), at, m.Document)
}

func evaluateWasm(p *wasm.Policy) policy {
	return func(ctx context.Context, hook hostabi.Hook, at time.Time, document []byte) (wire.Reply, error) {
		a, err := p.EvaluateDocument(ctx, hook, at, document)
		return withLog(wire.Reply{
			Verdict: a.Document, Fuel: a.Fuel, Memory: a.Memory, Elapsed: int64(a.Elapsed), Restored: a.Restored,
		}, a.Log), err
	}
}

func evaluateRego(p *rego.Policy) policy {
	return func(ctx context.Context, hook hostabi.Hook, _ time.Time, document []byte) (wire.Reply, error) {
		a, err := p.EvaluateDocument(ctx, hook, document)
		return wire.Reply{
			Verdict: a.Document, Fuel: a.Fuel, Memory: a.Memory, Elapsed: int64(a.Elapsed), Restored: a.Restored,
		}, err
	}
}

func withLog(reply wire.Reply, log wasm.Log) wire.Reply {
	for _, line := range log.Lines {
		reply.Log = append(reply.Log, wire.Line{Source: string(line.Source), Level: uint32(line.Level), Text: line.Text})
	}
	reply.Dropped = int64(log.Dropped)
	return reply
}

func names(hooks []hostabi.Hook) []string {
	list := make([]string, 0, len(hooks))
	for _, h := range hooks {
		list = append(list, string(h))
	}
	return list
}

func hooks(names []string) []hostabi.Hook {
	list := make([]hostabi.Hook, 0, len(names))
	for _, n := range names {
		list = append(list, hostabi.Hook(n))
	}
	return list
}
