// Package policies says what a policy is: something that is asked a question
// about an object and gives a verdict. It knows no engine and no cluster.
package policies

import (
	"context"
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Evaluator answers one request. It has no effects: the same request gives the
// same verdict. Its methods may be called concurrently.
type Evaluator interface {
	// Name says who answers, for records.
	Name() string

	// Evaluate answers a request. The error is a *Fault when the policy is to
	// blame, and any other error when the host is. With an error, the verdict
	// is the zero Verdict, which allows nothing.
	Evaluate(ctx context.Context, request hostabi.Request) (hostabi.Verdict, error)
}

// Fault is a policy that did not answer as it must. The object it was asked
// about is kept.
type Fault struct {
	Policy  string
	Kind    FaultKind
	Message string // the rest of a sentence about the policy, for its author
}

// Error implements error.
func (f *Fault) Error() string { return fmt.Sprintf("policy %s is at fault: %s", f.Policy, f.Message) }

// FaultKind is what a policy did wrong. It is a label of metrics.
type FaultKind string

// The kinds of faults. The empty FaultKind is a fault that nobody has sorted.
const (
	FaultRefused     FaultKind = "Refused"     // it was not run: there is no telling what it would do
	FaultMissingHook FaultKind = "MissingHook" // it does not answer this hook
	FaultExhausted   FaultKind = "Exhausted"   // it used up its fuel
	FaultMemoryLimit FaultKind = "MemoryLimit" // it wanted more memory than it may have
	FaultTimedOut    FaultKind = "TimedOut"    // it took too long
	FaultTrapped     FaultKind = "Trapped"     // it broke off
	FaultMisuse      FaultKind = "Misuse"      // it called the host as it must not
	FaultNoVerdict   FaultKind = "NoVerdict"   // it ended without an answer
	FaultBadVerdict  FaultKind = "BadVerdict"  // its answer makes no sense
	FaultCrashed     FaultKind = "Crashed"     // it crashed the process that it ran in
	FaultQuarantined FaultKind = "Quarantined" // it is not run for now, since it had its process killed
)
