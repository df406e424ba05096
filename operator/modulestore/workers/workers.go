// Package workers compiles and evaluates modules in worker processes.
//
// It adapts package worker to package modulestore. It fetches no modules and makes no
// decisions.
package workers

import (
	"context"
	"errors"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
	"github.com/gleaner-dev/gleaner/policies/worker"
)

// Compiler compiles modules in workers. The pool belongs to the caller.
type Compiler struct{ Pool *worker.Pool }

var _ modulestore.Compiler = Compiler{}

// Compile implements modulestore.Compiler.
func (c Compiler) Compile(ctx context.Context, r modulestore.CompileRequest) (modulestore.Compiled, error) {
	s := worker.Source{Engine: worker.Wasm, Name: r.Name, Namespace: r.Namespace, Digest: r.Digest}
	if r.Engine == v1alpha1.EngineRego {
		s.Engine = worker.Rego
	}
	for _, f := range r.Files {
		if f.Name == "" {
			f.Name = r.Name
		}
		s.Files = append(s.Files, worker.File(f))
	}
	m, err := c.Pool.Compile(ctx, s)
	if refusal := (*worker.RejectedError)(nil); errors.As(err, &refusal) {
		return nil, &modulestore.CompileError{Message: refusal.Message, Temporary: refusal.Temporary}
	}
	if err != nil {
		return nil, err
	}
	return module{m}, nil
}

type (
	module   struct{ *worker.Module }
	instance struct{ *worker.Policy }
)

// Hooks implements modulestore.Compiled.
func (m module) Hooks() []hostabi.Hook { return m.Module.Hooks }

// Needs implements modulestore.Compiled.
func (m module) Needs() policies.Needs { return m.Module.Needs }

// Start implements modulestore.Compiled.
func (m module) Start(ctx context.Context, o modulestore.StartOptions) (modulestore.Instance, error) {
	p, err := m.Module.Start(ctx, worker.StartOptions{Name: o.Policy, Namespace: o.Namespace, Limits: sandbox.Limits(o.Limits)})
	if err != nil {
		return nil, err
	}
	return instance{p}, nil
}

// Close implements modulestore.Compiled. Unused modules are freed when workers are
// replaced.
func (m module) Close() {}

// Close implements modulestore.Instance.
func (i instance) Close() {}
