package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Limits bound one call of a policy.
type Limits = sandbox.Limits

// Options configure a policy.
type Options struct {
	Name   string // of the policy
	Limits Limits // of each call

	// Instances is how many calls may run at the same time; others wait.
	// Default: one for each core, and at least two.
	Instances int
}

// Policy evaluates a module. It does not share instances with other policies.
type Policy struct {
	options Options
	module  *Module
	pool    *sandbox.Pool
}

var _ policies.Evaluator = (*Policy)(nil)

// NewPolicy starts the module for a policy. The error is a *policies.Fault if the
// module caused it. The caller closes the Policy, before the Module.
func NewPolicy(ctx context.Context, m *Module, o Options) (*Policy, error) {
	p := &Policy{options: o, module: m}
	pool, err := m.loaded.NewPool(ctx, sandbox.PoolOptions{Limits: o.Limits, Instances: o.Instances})
	if err != nil {
		return nil, p.fault("", err)
	}
	p.pool = pool
	return p, nil
}

// Close waits for calls and frees the instances. It must be called once.
func (p *Policy) Close() { p.pool.Close() }

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
}

// EvaluateMetered is like Evaluate, and also returns what a record needs. With an error, the
// Evaluation has no verdict, but the resources used.
func (p *Policy) EvaluateMetered(ctx context.Context, request hostabi.Request) (Evaluation, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return Evaluation{}, fmt.Errorf("evaluate policy %s: %w", p.options.Name, err)
	}
	return p.EvaluateDocument(ctx, request.Hook, document)
}

// EvaluateDocument is like EvaluateMetered for a marshaled request with this hook.
func (p *Policy) EvaluateDocument(ctx context.Context, hook hostabi.Hook, document []byte) (a Evaluation, err error) {
	if hook == hostabi.HookValidate {
		a.Document, err = p.module.Settings.Answer(document, true)
	}
	if a.Document == nil && err == nil {
		a.Document, a.Usage, err = p.evalDocument(ctx, hook, document)
	}
	if err == nil {
		a.Verdict, err = hostabi.ParseVerdict(hook, a.Document)
	}
	if err != nil {
		a.Document = nil
		return a, p.fault(hook, err)
	}
	return a, nil
}

// errNoHook reports that the policy has no rule for a hook.
var errNoHook = errors.New("no such hook")

// evalDocument returns the value of a hook's rule as JSON.
func (p *Policy) evalDocument(ctx context.Context, hook hostabi.Hook, request []byte) (verdict []byte, usage sandbox.Usage, err error) {
	entry := slices.Index(p.module.Hooks, hook)
	if entry < 0 {
		return nil, usage, errNoHook
	}
	usage, err = p.pool.Run(ctx, func(ctx context.Context, in *sandbox.Instance) error {
		var err error
		verdict, err = guest{in}.eval(p.module.names.withContext(ctx), entry, request, p.module.heap, hostabi.MaxVerdictBytes)
		return err
	})
	return verdict, usage, err
}
