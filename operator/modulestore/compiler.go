package modulestore

import (
	"context"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// Compiler makes modules that can be evaluated of their files. Its methods may be
// called concurrently.
type Compiler interface {
	// Compile returns the module. The error is a *CompileError when the module is to
	// blame, and any other error when the host is. It should return soon after ctx ends.
	Compile(ctx context.Context, r CompileRequest) (Compiled, error)
}

// CompileRequest is a module to compile.
type CompileRequest struct {
	Engine    v1alpha1.Engine
	Name      string        // of the resource, as in ClusterPolicyModule keep-data
	Namespace string        // of the resource; empty: it is cluster-scoped
	Files     []source.File // not to be changed
	Digest    string        // of the files
}

// Compiled is a module that was compiled.
type Compiled interface {
	// Hooks are those that the module answers.
	Hooks() []hostabi.Hook

	// Start returns an instance for one policy or finalizer. The error is a
	// *policies.Fault when the module is to blame, and any other error when the host is.
	Start(ctx context.Context, o StartOptions) (Instance, error)

	// Close frees the module. It is called once, after all its instances were closed.
	Close()
}

// StartOptions say for whom an instance is started.
type StartOptions struct {
	Policy    string // policy or finalizer, as in GCPolicy shop/keep-data
	Namespace string // of the policy or finalizer; empty: it is cluster-scoped
	Limits    Limits
}

// Limits bound each call of an instance. Zero fields mean the engine's default.
type Limits struct {
	Fuel    int64
	Memory  int64 // bytes
	Timeout time.Duration
}

// Instance is a module as one policy or finalizer evaluates it.
type Instance interface {
	policies.Asker

	// Close frees the instance. It is called once, when no call is in flight, and no call
	// follows.
	Close()
}

// CompileError is a module that does not compile. Its author is to blame.
type CompileError struct {
	Message string // for the author

	// Temporary says that the same module may compile another time, such as one that took
	// too long, or whose worker was killed. Without it, the module is not compiled again
	// until its content changes.
	Temporary bool
}

// Error implements error.
func (e *CompileError) Error() string { return e.Message }
