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

// Engine is what a module is written for.
type Engine string

// The engines, as v1alpha1.Engine names them.
const (
	Rego Engine = "Rego"
	Wasm Engine = "Wasm"
)

// File is a file of a module's source. Its name is what messages say.
type File struct {
	Name string
	Data []byte
}

// Source is a module to be compiled.
type Source struct {
	Engine    Engine
	Name      string // of the module, for messages
	Namespace string // whose module it is; empty: the cluster's
	Digest    string // of the files
	Files     []File
}

// Refusal is a module that is never run. Its author is to blame, and the message says for
// what, as the rest of a sentence about the module.
type Refusal struct {
	Message string

	// Temporary says that it may compile another time: it took too long, or too much memory.
	Temporary bool
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// Module is a compiled module. It is held by the Pool's caller: workers load it as they
// come to need it.
type Module struct {
	Engine  Engine
	Digest  string
	Hooks   []hostabi.Hook
	Imports []string // or, of Rego, the built-in functions that it leaves to the host
	Size    int64    // bytes of WebAssembly

	pool   *Pool
	tenant bool // it belongs to a namespace
	code   []byte
	sum    string // of the code
	number uint32
}

// Compile compiles a module in a worker that holds nothing else, and checks that it can be
// run. The error is a *Refusal when its author is to blame.
func (p *Pool) Compile(ctx context.Context, s Source) (*Module, error) {
	scope := scopeOf(s.Namespace)
	// A module that cannot be compiled is quarantined by its content, under no policy.
	who := subject{scope: scope, digest: s.Digest, author: s.Namespace}
	if found, in := p.quarantine.check(who); in {
		return nil, refusal(found)
	}
	request := &wire.Compile{Engine: string(s.Engine)}
	for _, f := range s.Files {
		request.Files = append(request.Files, wire.File{Name: f.Name, Text: f.Data})
	}
	return call(ctx, p.compiling[scope], s.Namespace, nil, nil, func(w *process) (*Module, error) {
		reply, err := w.bounded(request, wire.MaxReply, bounds{
			time: p.config.CompileTimeout, memory: p.config.Memory, doing: "while it was compiled,",
		})
		if err != nil {
			return nil, err
		}
		return p.module(s, reply)
	}, func(death *deathError) error { return refusal(p.quarantine.add(who, death.cause, death.detail)) })
}

// refusal is a Refusal where the module is known to have ended its worker, and the host's
// error otherwise.
func refusal(s sentence) error {
	if !s.cause.guilty() {
		return errors.New(s.message())
	}
	return &Refusal{Message: s.message(), Temporary: true}
}

// module makes a Module of a reply, which is checked as anything from a worker is.
func (p *Pool) module(s Source, reply wire.Reply) (*Module, error) {
	switch reply.Outcome {
	case wire.Done:
	case wire.Refused:
		return nil, &Refusal{Message: clip(reply.Message)}
	default:
		return nil, fmt.Errorf("compile module %s: %s", s.Name, clip(reply.Message))
	}
	m := &Module{Engine: s.Engine, Digest: s.Digest, Size: reply.Size, pool: p, tenant: s.Namespace != "", number: p.numbers.next()}
	for _, name := range reply.Hooks {
		hook := hostabi.Hook(name)
		if !slices.Contains(hostabi.Hooks(), hook) || slices.Contains(m.Hooks, hook) {
			return nil, fmt.Errorf("compile module %s: its worker reported a hook %q, which is none", s.Name, name)
		}
		m.Hooks = append(m.Hooks, hook)
	}
	for _, name := range reply.Imports {
		m.Imports = append(m.Imports, clip(name))
	}
	m.code = slices.Clone(reply.Code) // the frame's memory is used again
	if s.Engine == Wasm {
		m.code = s.Files[0].Data
	}
	sum := sha256.Sum256(m.code)
	m.sum = hex.EncodeToString(sum[:])
	return m, nil
}

// StartOptions say for whom a module is started.
type StartOptions struct {
	Name      string // of the policy or finalizer
	Namespace string // whose it is; empty: the cluster's
	Limits    sandbox.Limits
}

// Policy asks a module for a policy or finalizer. It implements policies.Asker.
type Policy struct {
	name      string
	namespace string
	limits    sandbox.Limits
	module    *Module
	number    uint32
}

var _ policies.Asker = (*Policy)(nil)

// Start starts a module for a policy, in one worker for now. The error is a
// *policies.Fault when the module is to blame.
func (m *Module) Start(ctx context.Context, o StartOptions) (*Policy, error) {
	if err := o.Limits.Validate(); err != nil {
		return nil, &policies.Fault{Policy: o.Name, Kind: policies.FaultRefused, Message: "limits: " + err.Error()}
	}
	p := &Policy{name: o.Name, namespace: o.Namespace, limits: o.Limits.WithDefaults(), module: m, number: m.pool.numbers.next()}
	if m.tenant { // one may have been stored with more, before that was refused
		p.limits.Memory = min(p.limits.Memory, sandbox.MaxNamespacedMemory)
	}
	if most := m.pool.config.Memory / 2; p.limits.Memory > most {
		return nil, &policies.Fault{Policy: o.Name, Kind: policies.FaultRefused, Message: fmt.Sprintf(
			"limits.memory is %d MiB, and a sandbox worker has room for at most %d MiB: write less, or run gleaner with a larger --sandbox-memory",
			p.limits.Memory>>20, most>>20)}
	}
	m.pool.quarantine.supersede(p.subject())
	if _, err := p.run(ctx, "", nil, func(*process) (policies.Answer, error) { return policies.Answer{}, nil }); err != nil {
		return nil, err
	}
	return p, nil
}

// Name implements policies.Evaluator.
func (p *Policy) Name() string { return p.name }

// Evaluate implements policies.Evaluator.
func (p *Policy) Evaluate(ctx context.Context, request hostabi.Request) (hostabi.Verdict, error) {
	answer, err := p.Ask(ctx, request)
	return answer.Verdict, err
}

// Ask implements policies.Asker.
func (p *Policy) Ask(ctx context.Context, request hostabi.Request) (policies.Answer, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return policies.Answer{}, fmt.Errorf("evaluate policy %s: %w", p.name, err)
	}
	if len(document) > hostabi.MaxRequestBytes {
		return policies.Answer{}, fmt.Errorf("evaluate policy %s: the request has %d bytes, which is over the limit of %d",
			p.name, len(document), hostabi.MaxRequestBytes)
	}
	ask := wire.Ask{Policy: p.number, Hook: string(request.Hook), Document: document}
	if !request.Time.IsZero() {
		ask.Time = request.Time.UnixNano()
	}
	quick := func(w *process) (answer policies.Answer, answered bool, err error) {
		reply, answered := w.quick(&ask, len(document), maxAnswer)
		if answered {
			answer, err = p.answer(request.Hook, reply, w)
		}
		return answer, answered, err
	}
	return p.run(ctx, request.Object.Metadata.Namespace, quick, func(w *process) (policies.Answer, error) {
		reply, err := w.bounded(&ask, maxAnswer, p.bounds("while it was evaluated,"))
		if err != nil {
			return policies.Answer{}, err
		}
		return p.answer(request.Hook, reply, w)
	})
}

// answer makes an Answer of a reply. The verdict is parsed here, whatever the worker made
// of it.
func (p *Policy) answer(hook hostabi.Hook, reply wire.Reply, w *process) (policies.Answer, error) {
	a := policies.Answer{Fuel: reply.Fuel}
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
		return a, &policies.Fault{Policy: p.name, Kind: policies.FaultBadVerdict, Message: err.Error()}
	}
	a.Verdict = verdict
	return a, nil
}

// failure is what a reply says went wrong.
func (p *Policy) failure(doing string, reply wire.Reply, w *process) error {
	switch reply.Outcome {
	case wire.Done:
		return nil
	case wire.Refused:
		return &policies.Fault{Policy: p.name, Kind: policies.FaultRefused, Message: clip(reply.Message)}
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
		return fmt.Errorf("%s %s: %s", doing, p.name, clip(reply.Message))
	}
	return &policies.Fault{Policy: p.name, Kind: faultKind(reply.FaultKind), Message: clip(reply.Message)}
}

// faultKind takes a kind of fault from a worker, which may send any text.
func faultKind(text string) policies.FaultKind {
	kind := policies.FaultKind(text)
	if slices.Contains([]policies.FaultKind{
		policies.FaultRefused, policies.FaultMissingHook, policies.FaultExhausted, policies.FaultMemoryLimit, policies.FaultTimedOut,
		policies.FaultTrapped, policies.FaultMisuse, policies.FaultNoVerdict, policies.FaultBadVerdict,
	}, kind) {
		return kind
	}
	return policies.FaultTrapped
}

// bounds are those of one call.
func (p *Policy) bounds(doing string) bounds {
	return bounds{time: p.limits.Timeout + 100*time.Millisecond, memory: p.module.pool.config.Memory, doing: doing}
}

func (p *Policy) isStarted(w *process) bool {
	_, ok := w.policies[p.number]
	return ok
}

// prepare has a worker load the module and start the policy, where it has not.
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
		reply, err := w.bounded(load, maxAnswer, bounds{
			time: m.pool.config.CompileTimeout, memory: m.pool.config.Memory, doing: "while it was loaded,",
		})
		if err == nil {
			err = p.failure("load the module of policy", reply, w)
		}
		if err != nil {
			return err
		}
		w.modules[m.number] = struct{}{}
	}
	reply, err := w.bounded(&wire.Start{
		Policy: p.number, Module: m.number, Name: p.name,
		Fuel: p.limits.Fuel, Memory: p.limits.Memory, Timeout: int64(p.limits.Timeout),
	}, maxAnswer, p.bounds("while it was initialized,"))
	if err == nil {
		err = p.failure("start the module of policy", reply, w)
	}
	if err != nil {
		return err
	}
	w.policies[p.number] = struct{}{}
	return nil
}

// clip bounds a text that comes from a worker.
func clip(text string) string {
	const most = 8 << 10
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
