package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Options say how a policy is run.
type Options struct {
	Name      string // for records and faults
	Limits    sandbox.Limits
	Instances int // that may run at the same time; default: one for each core, and at least two
}

// Policy is a module with the limits under which it is asked. It implements
// policies.Evaluator.
type Policy struct {
	name   string
	module *Module
	pool   *sandbox.Pool
}

// NewPolicy returns a policy, which is to be closed before its module.
func (m *Module) NewPolicy(ctx context.Context, o Options) (*Policy, error) {
	pool, err := m.module.NewPool(ctx, sandbox.PoolOptions{Limits: o.Limits, Instances: o.Instances})
	if err != nil {
		return nil, fmt.Errorf("start policy %s: %w", o.Name, blame(err))
	}
	return &Policy{name: o.Name, module: m, pool: pool}, nil
}

// Close waits for those who ask, and frees the policy.
func (p *Policy) Close() { p.pool.Close() }

// Name implements policies.Evaluator.
func (p *Policy) Name() string { return p.name }

// Evaluate implements policies.Evaluator.
func (p *Policy) Evaluate(ctx context.Context, request hostabi.Request) (hostabi.Verdict, error) {
	report, err := p.Ask(ctx, request)
	return report.Verdict, err
}

// Report is what came of a request, and what it took.
type Report struct {
	Verdict hostabi.Verdict
	Usage   sandbox.Usage
}

// Ask answers as Evaluate does, and says what it took, also with an error.
func (p *Policy) Ask(ctx context.Context, request hostabi.Request) (Report, error) {
	document, err := hostabi.MarshalRequest(request)
	if err != nil {
		return Report{}, fmt.Errorf("ask policy %s: %w", p.name, err)
	}
	answer, usage, err := p.askDocument(ctx, request.Hook, document)
	if err != nil {
		return Report{Usage: usage}, p.fault(request.Hook, err)
	}
	verdict, err := hostabi.ParseVerdict(request.Hook, answer)
	if err != nil {
		return Report{Usage: usage}, p.fault(request.Hook, err)
	}
	return Report{Verdict: verdict, Usage: usage}, nil
}

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

// fault says in an author's words why a hook gave no verdict, if that is the
// policy's doing.
func (p *Policy) fault(hook hostabi.Hook, err error) error {
	stopped, bad := (*sandbox.Stopped)(nil), (*hostabi.VerdictError)(nil)
	message := ""
	switch {
	case errors.Is(err, errUndefined):
		message = fmt.Sprintf(`rule %s is undefined for this request; say {"decision": "Abstain"} where it has nothing to say`, hook)
	case errors.Is(err, errNoHook):
		message = fmt.Sprintf("it has no rule %s", hook)
	case errors.As(err, &stopped):
		message = fmt.Sprintf("rule %s: %s", hook, stopped.Message)
	case errors.As(err, &bad):
		message = fmt.Sprintf("rule %s: %s", hook, bad)
	default:
		return fmt.Errorf("ask policy %s: %w", p.name, err)
	}
	return &policies.Fault{Policy: p.name, Message: message}
}

// clarify says in other words what the module says of itself.
func clarify(message string) string {
	for _, c := range []struct{ says, means string }{
		{"var assignment conflict", "the rule or function has two values at once: make its conditions exclude each other, or use else"},
		{"object insert conflict", "one key of an object has two values at once"},
	} {
		if where, ok := strings.CutSuffix(message, ": "+c.says); ok {
			return withoutColumn(where) + ": " + c.means
		}
	}
	if !strings.Contains(message, " ") {
		return "it gave up in " + message // which is all that OPA says
	}
	return message
}

// withoutColumn leaves file and line, as all messages about a source have.
func withoutColumn(place string) string {
	if i := strings.LastIndexByte(place, ':'); i > 0 && strings.Count(place, ":") > 1 {
		return place[:i]
	}
	return place
}
