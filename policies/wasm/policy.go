package wasm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// initialize is called before anything else, when a module exports it.
const initialize = "_initialize"

// Options say how a policy uses its module.
type Options struct {
	Name   string // of the policy
	Limits Limits // of each call

	// LogBytes is how much of the log of one call is kept. Default: 64 KiB.
	LogBytes int

	// Instances is how many calls may run at the same time; others wait.
	// Default: one for each core, and at least two.
	Instances int
}

const defaultLogBytes = 64 << 10

// Policy asks a module. It shares instances with no other policy.
type Policy struct {
	// InitFuel and InitLog are what initialising the module used and wrote.
	InitFuel int64
	InitLog  Log

	options Options
	module  *Module
	pool    *sandbox.Pool
}

var _ policies.Evaluator = (*Policy)(nil)

// NewPolicy initialises the module for a policy. The error is a *policies.Fault
// when the module is to blame. The caller closes the Policy, before the Module.
func NewPolicy(ctx context.Context, m *Module, o Options) (*Policy, error) {
	if o.LogBytes == 0 {
		o.LogBytes = defaultLogBytes
	}
	p := &Policy{options: o, module: m}
	first := newCall(nil, time.Time{}, o.LogBytes)
	pool, err := m.loaded.NewPool(ctx, sandbox.PoolOptions{
		Limits:     o.Limits,
		Instances:  o.Instances,
		Initialize: p.initialize(first),
	})
	if err != nil {
		return nil, p.fault(first, "while it was initialised, ", err)
	}
	p.pool, p.InitFuel, p.InitLog = pool, pool.InitFuel, first.log.end()
	return p, nil
}

// initialize calls the module's own initialisation, if it has one. The first time
// is for the caller to read the log of; if instances can't be restored, it is
// called for each of them.
func (p *Policy) initialize(first *call) func(context.Context, *sandbox.Instance) error {
	return func(ctx context.Context, in *sandbox.Instance) error {
		c := first
		if p.pool != nil {
			c = newCall(nil, time.Time{}, 0)
		}
		if !p.module.loaded.Exported(initialize, nil, nil) {
			return nil
		}
		_, err := in.Call(context.WithValue(ctx, callKey{}, c), initialize)
		return err
	}
}

// Name implements policies.Evaluator.
func (p *Policy) Name() string { return p.options.Name }

// Evaluate implements policies.Evaluator.
func (p *Policy) Evaluate(ctx context.Context, request hostabi.Request) (hostabi.Verdict, error) {
	answer, err := p.Ask(ctx, request)
	return answer.Verdict, err
}

// Answer is a verdict, and what it took.
type Answer struct {
	Verdict  hostabi.Verdict
	Document []byte // the verdict as the module wrote it
	sandbox.Usage
	Log Log
}

// Ask is Evaluate, with what a record needs. With an error, the Answer has no
// verdict, and has what it took to come to that.
func (p *Policy) Ask(ctx context.Context, request hostabi.Request) (Answer, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return Answer{}, fmt.Errorf("ask policy %s: %w", p.options.Name, err)
	}
	return p.AskDocument(ctx, request.Hook, request.Time, document)
}

// AskDocument is Ask for a request that has been marshaled already. The hook and the time
// are those of the document.
func (p *Policy) AskDocument(ctx context.Context, hook hostabi.Hook, at time.Time, document []byte) (Answer, error) {
	if !slices.Contains(p.module.Hooks, hook) {
		return Answer{}, &policies.Fault{
			Policy: p.options.Name, Kind: policies.FaultMissingHook,
			Message: fmt.Sprintf("its module exports no hook %s", hook),
		}
	}
	if len(document) > hostabi.MaxRequestBytes {
		return Answer{}, fmt.Errorf("ask policy %s: the request has %d bytes, which is over the limit of %d",
			p.options.Name, len(document), hostabi.MaxRequestBytes)
	}
	return p.ask(ctx, hook, newCall(document, at, p.options.LogBytes))
}

func (p *Policy) ask(ctx context.Context, hook hostabi.Hook, c *call) (Answer, error) {
	var a Answer
	var err error
	a.Usage, err = p.pool.Run(ctx, func(ctx context.Context, in *sandbox.Instance) error {
		_, err := in.Call(context.WithValue(ctx, callKey{}, c), string(hook))
		return err
	})
	if err == nil && !c.answered {
		err = &misuse{policies.FaultNoVerdict, fmt.Sprintf("its hook %s returned without having written a verdict", hook)}
	}
	if err == nil {
		a.Verdict, err = hostabi.ParseVerdict(hook, c.verdict)
	}
	a.Log = c.log.end()
	if err != nil {
		return a, p.fault(c, "", err)
	}
	a.Document = c.verdict
	return a, nil
}

// Close waits for calls and frees the instances. It is to be called once.
func (p *Policy) Close() { p.pool.Close() }

var faultKinds = map[sandbox.Kind]policies.FaultKind{
	sandbox.Exhausted: policies.FaultExhausted,
	sandbox.NoMemory:  policies.FaultMemoryLimit,
	sandbox.TimedOut:  policies.FaultTimedOut,
	sandbox.Trapped:   policies.FaultTrapped,
}

// fault says whose fault an error is, and returns it as one of the policy if it
// is the module's.
func (p *Policy) fault(c *call, when string, err error) error {
	f := &policies.Fault{Policy: p.options.Name}
	var (
		refusal *Refusal
		stopped *sandbox.Stopped
		misused *misuse
		bad     *hostabi.VerdictError
	)
	switch {
	case errors.As(err, &refusal):
		f.Kind = policies.FaultRefused
	case errors.As(err, &stopped):
		f.Kind = faultKinds[stopped.Kind]
	case errors.As(err, &misused):
		f.Kind = misused.kind
	case errors.As(err, &bad):
		f.Kind = policies.FaultBadVerdict
	default:
		return fmt.Errorf("ask policy %s: %w", p.options.Name, err)
	}
	f.Message = when + err.Error()
	if said := c.log.lastWords(); said != "" {
		f.Message += "; " + said
	}
	return f
}
