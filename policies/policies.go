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
	Message string
}

// Error implements error.
func (f *Fault) Error() string { return fmt.Sprintf("policy %s is at fault: %s", f.Policy, f.Message) }
