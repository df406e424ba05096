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

// Options say how a policy uses its module.
type Options struct {
	Name   string // of the policy
	Limits Limits // of each call

	// Instances is how many calls may run at the same time; others wait.
	// Default: one for each core, and at least two.
	Instances int
}

// Policy asks a module. It shares instances with no other policy.
type Policy struct {
	options Options
	module  *Module
	pool    *sandbox.Pool
}

var _ policies.Evaluator = (*Policy)(nil)

// NewPolicy starts the module for a policy. The error is a *policies.Fault when
// the module is to blame. The caller closes the Policy, before the Module.
func NewPolicy(ctx context.Context, m *Module, o Options) (*Policy, error) {
	p := &Policy{options: o, module: m}
	pool, err := m.loaded.NewPool(ctx, sandbox.PoolOptions{Limits: o.Limits, Instances: o.Instances})
	if err != nil {
		return nil, p.fault("", err)
	}
	p.pool = pool
	return p, nil
}

// Close waits for calls and frees the instances. It is to be called once.
func (p *Policy) Close() { p.pool.Close() }

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
}

// Ask is Evaluate, with what a record needs. With an error, the Answer has no
// verdict, and has what it took to come to that.
func (p *Policy) Ask(ctx context.Context, request hostabi.Request) (Answer, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return Answer{}, fmt.Errorf("ask policy %s: %w", p.options.Name, err)
	}
	return p.AskDocument(ctx, request.Hook, document)
}

// AskDocument is Ask for a request that has been marshaled already. The hook is that of
// the document.
func (p *Policy) AskDocument(ctx context.Context, hook hostabi.Hook, document []byte) (a Answer, err error) {
	a.Document, a.Usage, err = p.askDocument(ctx, hook, document)
	if err == nil {
		a.Verdict, err = hostabi.ParseVerdict(hook, a.Document)
	}
	if err != nil {
		a.Document = nil
		return a, p.fault(hook, err)
	}
	return a, nil
}

// errNoHook is a hook that the policy has no rule for.
var errNoHook = errors.New("no such hook")

// askDocument gives the value of a hook's rule as JSON.
func (p *Policy) askDocument(ctx context.Context, hook hostabi.Hook, request []byte) (answer []byte, usage sandbox.Usage, err error) {
	entry := slices.Index(p.module.Hooks, hook)
	if entry < 0 {
		return nil, usage, errNoHook
	}
	usage, err = p.pool.Run(ctx, func(ctx context.Context, in *sandbox.Instance) error {
		var err error
		answer, err = guest{in}.eval(p.module.names.within(ctx), entry, request, hostabi.MaxVerdictBytes)
		return err
	})
	return answer, usage, err
}
