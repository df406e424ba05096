package modulestore

import (
	"context"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// A Compiler compiles the files of modules. Its methods may be called concurrently.
type Compiler interface {
	// Compile returns the compiled module. The error is a *CompileError if the module caused
	// it, and any other error if the host did. It should return soon after ctx ends.
	Compile(ctx context.Context, r CompileRequest) (Compiled, error)
}

// A CompileRequest is a module to compile.
type CompileRequest struct {
	Engine    v1alpha1.Engine
	Name      string        // of the resource, as in ClusterPolicyModule keep-data
	Namespace string        // of the resource; empty: cluster-scoped
	Files     []source.File // read-only
	Digest    string        // of the files
}

// Compiled is a compiled module.
type Compiled interface {
	// Hooks returns the hooks that the module implements.
	Hooks() []hostabi.Hook

	// Needs returns how much of the object the module reads, as far as is known.
	Needs() policies.Needs

	// Start returns an instance for one policy or finalizer. The error is a
	// *policies.Fault if the module caused it, and any other error if the host did.
	Start(ctx context.Context, o StartOptions) (Instance, error)

	// Close frees the module. It is called once, after all instances are closed.
	Close()
}

// StartOptions configure an instance.
type StartOptions struct {
	Policy    string // policy or finalizer, as in GCPolicy shop/keep-data
	Namespace string // of the policy or finalizer; empty: cluster-scoped
	Limits    Limits
}

// Limits bound each call of an instance. Zero fields mean the engine's default.
type Limits struct {
	Fuel    int64
	Memory  int64 // bytes
	Timeout time.Duration
}

// An Instance is a started module, used by one policy or finalizer.
type Instance interface {
	policies.MeteredEvaluator

	// Close frees the instance. It is called once, after the last call has returned.
	Close()
}

// A CompileError is an error in a module, which its author has to fix.
type CompileError struct {
	Message string // for the author

	// Temporary is true if the same module may compile later, for example after a timeout or
	// because its worker was killed. If false, the module is not compiled again until its
	// content changes.
	Temporary bool
}

// Error implements error.
func (e *CompileError) Error() string { return e.Message }
