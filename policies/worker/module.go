package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
	"github.com/gleaner-dev/gleaner/policies/worker/wire"
)

// Engine is the engine of a module.
type Engine string

// The engines, as v1alpha1.Engine names them.
const (
	Rego Engine = "Rego"
	Wasm Engine = "Wasm"
)

// File is a source file of a module. Its name is used in messages.
type File struct {
	Name string
	Data []byte
}

// Source is a module to be compiled.
type Source struct {
	Engine    Engine
	Name      string // of the module, for messages
	Namespace string // namespace of the module; empty: cluster-scoped
	Digest    string // of the files
	Files     []File
}

// RejectedError reports a module that is rejected. The module caused it. The message
// completes a sentence about the module.
type RejectedError struct {
	Message string

	// Temporary reports whether a retry may succeed: the module exceeded the time
	// or memory for compiling.
	Temporary bool
}

// Error implements error.
func (r *RejectedError) Error() string { return r.Message }

// Module is a compiled module. The caller of the Pool keeps it: workers load it on
// demand.
type Module struct {
	Engine  Engine
	Digest  string
	Hooks   []hostabi.Hook
	Imports []string // or, for Rego, the built-in functions that the host implements
	Needs   policies.Needs
	Size    int64 // bytes of WebAssembly

	pool       *Pool
	tenant     bool // it belongs to a namespace
	code       []byte
	codeDigest string // of the code
	number     uint32
}

// Compile compiles a module in a worker that has nothing else loaded, and checks
// that it can run. The error is a *Refusal if the module caused it.
func (p *Pool) Compile(ctx context.Context, s Source) (*Module, error) {
	scope := scopeOf(s.Namespace)
	// A module that cannot be compiled is quarantined by its content, under no policy.
	who := subject{scope: scope, digest: s.Digest, compileNamespace: s.Namespace}
	if found, in := p.quarantine.check(who); in {
		return nil, rejectedError(found)
	}
	request := &wire.Compile{Engine: string(s.Engine)}
	for _, f := range s.Files {
		request.Files = append(request.Files, wire.File{Name: f.Name, Text: f.Data})
	}
	return call(ctx, p.compiling[scope], s.Namespace, nil, nil, func(w *process) (*Module, error) {
		reply, err := w.exchange(request, wire.MaxReply, bounds{
			cpuTime: p.config.CompileTimeout, memory: p.config.Memory, phase: "while it was compiled,",
		})
		if err != nil {
			return nil, err
		}
		return p.module(s, reply)
	}, func(death *exitError) error { return rejectedError(p.quarantine.add(who, death.cause, death.detail)) })
}

// rejectedError returns a Refusal if the module is known to have ended its worker, and an
// error of the host otherwise.
func rejectedError(s quarantineEntry) error {
	if !s.cause.causedByModule() {
		return errors.New(s.message())
	}
	return &RejectedError{Message: s.message(), Temporary: true}
}

// module creates a Module from a reply, which is validated, as everything from a
// worker.
func (p *Pool) module(s Source, reply wire.Reply) (*Module, error) {
	switch reply.Outcome {
	case wire.Done:
	case wire.Rejected:
		return nil, &RejectedError{Message: truncate(reply.Message)}
	default:
		return nil, fmt.Errorf("compile module %s: %s", s.Name, truncate(reply.Message))
	}
	m := &Module{Engine: s.Engine, Digest: s.Digest, Size: reply.Size, pool: p, tenant: s.Namespace != "", number: p.numbers.next()}
	for _, name := range reply.Hooks {
		hook := hostabi.Hook(name)
		if !slices.Contains(hostabi.Hooks(), hook) || slices.Contains(m.Hooks, hook) {
			return nil, fmt.Errorf("compile module %s: its worker reported a hook %q, which is none", s.Name, name)
		}
		m.Hooks = append(m.Hooks, hook)
	}
	switch needs := policies.Needs(reply.Needs); needs {
	case policies.NeedsMetadata, policies.NeedsReference:
		m.Needs = needs
	default:
		m.Needs = policies.NeedsObject
	}
	for _, name := range reply.Imports {
		m.Imports = append(m.Imports, truncate(name))
	}
	m.code = slices.Clone(reply.Code) // the frame's memory is used again
	if s.Engine == Wasm {
		m.code = s.Files[0].Data
	}
	sum := sha256.Sum256(m.code)
	m.codeDigest = hex.EncodeToString(sum[:])
	return m, nil
}

// StartOptions configure a started module.
type StartOptions struct {
	Name      string // of the policy or finalizer
	Namespace string // namespace of the policy or finalizer; empty: cluster-scoped
	Limits    sandbox.Limits
}

// Policy evaluates a module for a policy or finalizer. It implements
// policies.Evaluator.
type Policy struct {
	name      string
	namespace string
	limits    sandbox.Limits
	module    *Module
	number    uint32
}

var _ policies.MeteredEvaluator = (*Policy)(nil)

// Start starts a module for a policy, initially in one worker. The error is a
// *policies.Fault if the module caused it.
func (m *Module) Start(ctx context.Context, o StartOptions) (*Policy, error) {
	if err := o.Limits.Validate(); err != nil {
		return nil, &policies.Fault{Policy: o.Name, Kind: policies.FaultRejected, Message: "limits: " + err.Error()}
	}
	p := &Policy{name: o.Name, namespace: o.Namespace, limits: o.Limits.WithDefaults(), module: m, number: m.pool.numbers.next()}
	if m.tenant { // one may have been stored with more, before that was refused
		p.limits.Memory = min(p.limits.Memory, sandbox.MaxNamespacedMemory)
	}
	if most := m.pool.config.Memory / 2; p.limits.Memory > most {
		return nil, &policies.Fault{Policy: o.Name, Kind: policies.FaultRejected, Message: fmt.Sprintf(
			"limits.memory is %d MiB, and a sandbox worker has room for at most %d MiB: write less, or run gleaner with a larger --sandbox-memory",
			p.limits.Memory>>20, most>>20)}
	}
	m.pool.quarantine.removeSuperseded(p.subject())
	if _, err := p.run(ctx, "", nil, func(*process) (policies.Evaluation, error) { return policies.Evaluation{}, nil }); err != nil {
		return nil, err
	}
	return p, nil
}

// Name implements policies.Evaluator.
func (p *Policy) Name() string { return p.name }

// Evaluate implements policies.Evaluator.
func (p *Policy) Evaluate(ctx context.Context, request hostabi.Request) (hostabi.Verdict, error) {
	answer, err := p.EvaluateMetered(ctx, request)
	return answer.Verdict, err
}

// EvaluateMetered implements policies.Evaluator.
func (p *Policy) EvaluateMetered(ctx context.Context, request hostabi.Request) (policies.Evaluation, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return policies.Evaluation{}, fmt.Errorf("evaluate policy %s: %w", p.name, err)
	}
	if len(document) > hostabi.MaxRequestBytes {
		return policies.Evaluation{}, fmt.Errorf("evaluate policy %s: the request has %d bytes, which is over the limit of %d",
			p.name, len(document), hostabi.MaxRequestBytes)
	}
	ask := wire.Evaluate{Policy: p.number, Hook: string(request.Hook), Document: document}
	if !request.Time.IsZero() {
		ask.Time = request.Time.UnixNano()
	}
	quick := func(w *process) (answer policies.Evaluation, answered bool, err error) {
		reply, answered := w.quick(&ask, len(document), maxReply)
		if answered {
			answer, err = p.parseReply(request.Hook, reply, w)
		}
		return answer, answered, err
	}
	return p.run(ctx, request.Object.Metadata.Namespace, quick, func(w *process) (policies.Evaluation, error) {
		reply, err := w.exchange(&ask, maxReply, p.bounds("while it was evaluated,"))
		if err != nil {
			return policies.Evaluation{}, err
		}
		return p.parseReply(request.Hook, reply, w)
	})
}

// parseReply converts a reply. The verdict is parsed here, since workers are not
// trusted.
func (p *Policy) parseReply(hook hostabi.Hook, reply wire.Reply, w *process) (policies.Evaluation, error) {
	a := policies.Evaluation{Fuel: reply.Fuel}
	var log strings.Builder
	for _, line := range reply.Log {
		log.WriteString(line.Text + "\n")
	}
	a.Log = log.String()
	if err := p.failure("evaluate policy", reply, w); err != nil {
		return a, err
	}
	verdict, err := hostabi.ParseVerdict(hook, reply.Verdict)
	if err != nil {
		return a, &policies.Fault{Policy: p.name, Kind: policies.FaultInvalidVerdict, Message: err.Error()}
	}
	a.Verdict = verdict
	return a, nil
}

// failure returns the error in a reply.
func (p *Policy) failure(doing string, reply wire.Reply, w *process) error {
	switch reply.Outcome {
	case wire.Done:
		return nil
	case wire.Rejected:
		return &policies.Fault{Policy: p.name, Kind: policies.FaultRejected, Message: truncate(reply.Message)}
	case wire.Faulted:
		// The worker's own clock goes on while the machine is busy, or stands still.
		if faultKind(reply.FaultKind) != policies.FaultTimedOut {
			break
		}
		if used, ok := w.watch.used(w); ok && used < p.limits.Timeout/2 {
			return fmt.Errorf("%s %s: it took longer than its timeout of %s, with %s of processor time: the machine is busy, or stood still",
				doing, p.name, p.limits.Timeout, used.Round(time.Millisecond))
		}
	default:
		return fmt.Errorf("%s %s: %s", doing, p.name, truncate(reply.Message))
	}
	return &policies.Fault{Policy: p.name, Kind: faultKind(reply.FaultKind), Message: truncate(reply.Message)}
}

// faultKind validates the kind of a fault from a worker, which may send any text.
func faultKind(text string) policies.FaultKind {
	kind := policies.FaultKind(text)
	if slices.Contains([]policies.FaultKind{
		policies.FaultRejected, policies.FaultMissingHook, policies.FaultFuelExhausted, policies.FaultMemoryLimit, policies.FaultTimedOut,
		policies.FaultTrapped, policies.FaultInvalidCall, policies.FaultNoVerdict, policies.FaultInvalidVerdict,
	}, kind) {
		return kind
	}
	return policies.FaultTrapped
}

// bounds returns the bounds of one call.
func (p *Policy) bounds(doing string) bounds {
	return bounds{cpuTime: p.limits.Timeout + 100*time.Millisecond, memory: p.module.pool.config.Memory, phase: doing}
}

func (p *Policy) isStarted(w *process) bool {
	_, ok := w.policies[p.number]
	return ok
}

// prepare makes a worker load the module and start the policy, if necessary.
func (p *Policy) prepare(w *process) error {
	if p.isStarted(w) {
		return nil
	}
	m := p.module
	if _, ok := w.modules[m.number]; !ok {
		load := &wire.Load{Module: m.number, Engine: string(m.Engine), Digest: m.Digest, Code: m.code}
		for _, hook := range m.Hooks {
			load.Hooks = append(load.Hooks, string(hook))
		}
		reply, err := w.exchange(load, maxReply, bounds{
			cpuTime: m.pool.config.CompileTimeout, memory: m.pool.config.Memory, phase: "while it was loaded,",
		})
		if err == nil {
			err = p.failure("load the module of policy", reply, w)
		}
		if err != nil {
			return err
		}
		w.modules[m.number] = struct{}{}
	}
	reply, err := w.exchange(&wire.Start{
		Policy: p.number, Module: m.number, Name: p.name,
		Fuel: p.limits.Fuel, Memory: p.limits.Memory, Timeout: int64(p.limits.Timeout),
	}, maxReply, p.bounds("while it was initialized,"))
	if err == nil {
		err = p.failure("start the module of policy", reply, w)
	}
	if err != nil {
		return err
	}
	w.policies[p.number] = struct{}{}
	return nil
}

// truncate truncates a text from a worker.
func truncate(text string) string {
	const most = 8 << 10
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
