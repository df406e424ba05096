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

// initialize is the export that is called first, if it exists.
const initialize = "_initialize"

// Options configure a policy.
type Options struct {
	Name   string // of the policy
	Limits Limits // of each call

	// LogBytes is the maximum size of the log of one call. Default: 64 KiB.
	LogBytes int

	// Instances is how many calls may run at the same time; others wait.
	// Default: one for each core, and at least two.
	Instances int
}

const defaultLogBytes = 64 << 10

// Policy evaluates a module. It does not share instances with other policies.
type Policy struct {
	// InitFuel and InitLog are the fuel and the log of the initialization.
	InitFuel int64
	InitLog  Log

	options Options
	module  *Module
	pool    *sandbox.Pool
}

var _ policies.Evaluator = (*Policy)(nil)

// NewPolicy initializes the module for a policy. The error is a *policies.Fault if
// the module caused it. The caller closes the Policy, before the Module.
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
		return nil, p.fault(first, "during initialization, ", err)
	}
	p.pool, p.InitFuel, p.InitLog = pool, pool.InitFuel, first.log.end()
	return p, nil
}

// initialize calls the module's initialization, if it has one. The log of the first
// call is for the caller; if instances cannot be restored, it is called for each of
// them.
func (p *Policy) initialize(first *call) func(context.Context, *sandbox.Instance) error {
	return func(ctx context.Context, in *sandbox.Instance) error {
		c := first
		if p.pool != nil {
			c = newCall(nil, time.Time{}, 0)
		}
		if !p.module.loaded.ExportsFunction(initialize, nil, nil) {
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
	answer, err := p.EvaluateMetered(ctx, request)
	return answer.Verdict, err
}

// Evaluation is a verdict, and the resources that its evaluation used.
type Evaluation struct {
	Verdict  hostabi.Verdict
	Document []byte // the verdict as the module wrote it
	sandbox.Usage
	Log Log
}

// EvaluateMetered is like Evaluate, and also returns what a record needs. With an error, the
// Evaluation has no verdict, but the resources used.
func (p *Policy) EvaluateMetered(ctx context.Context, request hostabi.Request) (Evaluation, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return Evaluation{}, fmt.Errorf("evaluate policy %s: %w", p.options.Name, err)
	}
	return p.EvaluateDocument(ctx, request.Hook, request.Time, document)
}

// EvaluateDocument is like EvaluateMetered for a marshaled request with this hook and time.
func (p *Policy) EvaluateDocument(ctx context.Context, hook hostabi.Hook, at time.Time, document []byte) (Evaluation, error) {
	if !slices.Contains(p.module.Hooks, hook) {
		return Evaluation{}, &policies.Fault{
			Policy: p.options.Name, Kind: policies.FaultMissingHook,
			Message: fmt.Sprintf("its module exports no hook %s", hook),
		}
	}
	if len(document) > hostabi.MaxRequestBytes {
		return Evaluation{}, fmt.Errorf("evaluate policy %s: the request has %d bytes, which exceeds the limit of %d",
			p.options.Name, len(document), hostabi.MaxRequestBytes)
	}
	if hook == hostabi.HookValidate {
		verdict, err := p.module.Settings.Answer(document, p.module.loaded.ExportsFunction(string(hook), nil, nil))
		if err != nil {
			return Evaluation{}, fmt.Errorf("evaluate policy %s: %w", p.options.Name, err)
		}
		if verdict != nil {
			a := Evaluation{Document: verdict}
			a.Verdict, err = hostabi.ParseVerdict(hook, verdict)
			return a, err
		}
	}
	return p.evaluate(ctx, hook, newCall(document, at, p.options.LogBytes))
}

func (p *Policy) evaluate(ctx context.Context, hook hostabi.Hook, c *call) (Evaluation, error) {
	var a Evaluation
	var err error
	a.Usage, err = p.pool.Run(ctx, func(ctx context.Context, in *sandbox.Instance) error {
		_, err := in.Call(context.WithValue(ctx, callKey{}, c), string(hook))
		return err
	})
	if err == nil && !c.verdictWritten {
		err = &guestError{policies.FaultNoVerdict, fmt.Sprintf("its hook %s returned without a verdict", hook)}
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

// Close waits for calls and frees the instances. It must be called once.
func (p *Policy) Close() { p.pool.Close() }

var faultKinds = map[sandbox.Kind]policies.FaultKind{
	sandbox.FuelExhausted: policies.FaultFuelExhausted,
	sandbox.MemoryLimit:   policies.FaultMemoryLimit,
	sandbox.TimedOut:      policies.FaultTimedOut,
	sandbox.Trapped:       policies.FaultTrapped,
}

// fault converts an error to a *policies.Fault if the module caused it.
func (p *Policy) fault(c *call, when string, err error) error {
	f := &policies.Fault{Policy: p.options.Name}
	var (
		refusal *RejectedError
		stopped *sandbox.TrapError
		misused *guestError
		bad     *hostabi.VerdictError
	)
	switch {
	case errors.As(err, &refusal):
		f.Kind = policies.FaultRejected
	case errors.As(err, &stopped):
		f.Kind = faultKinds[stopped.Kind]
	case errors.As(err, &misused):
		f.Kind = misused.kind
	case errors.As(err, &bad):
		f.Kind = policies.FaultInvalidVerdict
	default:
		return fmt.Errorf("evaluate policy %s: %w", p.options.Name, err)
	}
	f.Message = when + err.Error()
	if said := c.log.failureMessage(); said != "" {
		f.Message += "; " + said
	}
	return f
}
