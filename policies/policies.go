// Package policies defines policies: evaluators that return a verdict for a request
// about an object, and the resources that configure them. It does not depend on an
// engine or a cluster.
package policies

import (
	"context"
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Evaluator evaluates requests. It has no effects: the same request gives the same
// verdict. Its methods may be called concurrently.
type Evaluator interface {
	// Name identifies the evaluator in records.
	Name() string

	// Evaluate returns the verdict for a request. The error is a *Fault when the
	// policy caused it, and any other error when the host did. With an error, the
	// verdict is the zero Verdict, which allows nothing.
	Evaluate(ctx context.Context, request hostabi.Request) (hostabi.Verdict, error)
}

// Fault is an error that the policy caused. The object is kept.
type Fault struct {
	Policy  string
	Kind    FaultKind
	Message string // follows "policy NAME is at fault: "
}

// Error implements error.
func (f *Fault) Error() string { return fmt.Sprintf("policy %s is at fault: %s", f.Policy, f.Message) }

// FaultKind is the kind of a fault. It is a label value of metrics.
type FaultKind string

// The kinds of faults. The empty FaultKind is an unclassified fault.
const (
	FaultRejected       FaultKind = "Rejected"       // it was not run, since its effects are unknown
	FaultMissingHook    FaultKind = "MissingHook"    // it does not implement the hook
	FaultFuelExhausted  FaultKind = "FuelExhausted"  // it used up its fuel
	FaultMemoryLimit    FaultKind = "MemoryLimit"    // it exceeded its memory limit
	FaultTimedOut       FaultKind = "TimedOut"       // it exceeded its timeout
	FaultTrapped        FaultKind = "Trapped"        // it trapped
	FaultInvalidCall    FaultKind = "InvalidCall"    // it made an invalid call to the host
	FaultNoVerdict      FaultKind = "NoVerdict"      // it returned no verdict
	FaultInvalidVerdict FaultKind = "InvalidVerdict" // its verdict is invalid
	FaultCrashed        FaultKind = "Crashed"        // it crashed its worker process
	FaultQuarantined    FaultKind = "Quarantined"    // it is suspended, since its worker process had to be killed
)
