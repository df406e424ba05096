// Package modulecall evaluates one module for one object, for policies and for finalizers: in
// rounds, in which the module requests intents and receives their results; with as much of
// the object as the policy needs and its service account may read.
//
// It does not decide which modules are evaluated, and neither what a verdict nor what an
// error means: its callers do. It writes nothing.
package modulecall

import (
	"context"
	"fmt"
	"maps"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/policies"
)

// MaxRounds is the maximum number of rounds of a call.
const MaxRounds = 16

// Intents carries out the intents of modules.
type Intents interface {
	Do(ctx context.Context, on intents.Identity, intent hostabi.Intent) hostabi.Result
}

// Call is the evaluation of a module. It must not be used concurrently.
type Call struct {
	Evaluator policies.MeteredEvaluator

	// Request is the request of the next round. Its Round is set by Next, and its Results by
	// CarryOut.
	Request hostabi.Request

	// The result so far. A call ends with a Fault, or a Verdict other than Act.
	Verdict   hostabi.Verdict
	Fault     error
	Rounds    int
	Fuel      int64
	Exchanges []policies.Exchange // of each round
}

// Next evaluates the next round, and reports whether the module requests intents: then the
// caller carries them out, and calls Next again. Otherwise the call has ended.
func (c *Call) Next(ctx context.Context) (requested bool) {
	if c.Rounds == MaxRounds {
		c.Verdict, c.Fault = hostabi.Verdict{}, tooManyRounds(c.Request.Hook)
		return false
	}
	c.Rounds++
	c.Request.Round = c.Rounds
	evaluation, err := c.Evaluator.EvaluateMetered(ctx, c.Request)
	c.Fuel += evaluation.Fuel
	c.Exchanges = append(c.Exchanges, policies.NewExchange(c.Request, evaluation, err))
	c.Verdict, c.Fault = evaluation.Verdict, err
	return err == nil && evaluation.Verdict.Decision == hostabi.DecisionAct
}

// CarryOut carries out the requested intents by do, until that reports that the call is
// interrupted, and adds their results to those of earlier rounds.
func (c *Call) CarryOut(do func(hostabi.Intent) (result hostabi.Result, interrupted bool)) {
	results := maps.Clone(c.Request.Results) // earlier requests are in Exchanges
	if results == nil {
		results = map[string]hostabi.Result{}
	}
	for _, intent := range c.Verdict.Intents {
		result, interrupted := do(intent)
		if interrupted {
			break
		}
		results[intent.ID] = result
	}
	c.Request.Results = results
}

func tooManyRounds(hook hostabi.Hook) error {
	advice := "return a decision other than Act"
	if hook == hostabi.HookFinalize {
		advice = "keep track of progress in state, and return Wait in between"
	}
	return fmt.Errorf("it still requests intents after %d rounds: %s", MaxRounds, advice)
}
