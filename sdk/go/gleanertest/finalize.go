package gleanertest

import (
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
)

// maxRounds is the number of rounds within an attempt.
const maxRounds = 16

// FinalizeResult is the result of an attempt.
type FinalizeResult struct {
	Verdict gleaner.Verdict  // the last one, which is not Act
	Intents []gleaner.Intent // all intents, in this order
	Rounds  int              // number of evaluations
	Log     []Line

	// Next is the request of the next attempt, after Wait: at a later time, and
	// with the saved state.
	Next gleaner.Request
}

// Finalize evaluates a finalizer on a request, and again with the results of its
// intents until its decision is not Act. world returns the result of an intent.
// Each round is a [Call]. The error reports a fault of the module, also if it still
// acts when the rounds of an attempt are used up.
func Finalize(handler gleaner.Handler, request gleaner.Request, world func(gleaner.Intent) gleaner.Result) (FinalizeResult, error) {
	var f FinalizeResult
	r := request
	r.Results = map[string]gleaner.Result{}
	for id, result := range request.Results {
		r.Results[id] = result
	}
	for f.Rounds = 1; ; f.Rounds++ {
		answer, err := Call(handler, r)
		f.Log = append(f.Log, answer.Log...)
		if err != nil {
			return f, fmt.Errorf("round %d: %w", r.Round, err)
		}
		f.Verdict = answer.Verdict
		if len(f.Verdict.State) != 0 {
			r.State = f.Verdict.State
		}
		if f.Verdict.Decision != gleaner.Act {
			f.Next = nextAttempt(r, f.Verdict)
			return f, nil
		}
		if r.Round >= maxRounds {
			return f, fmt.Errorf("round %d: still Act, but an attempt has %d rounds: decide Wait, and continue in the next attempt", r.Round, maxRounds)
		}
		for _, intent := range f.Verdict.Intents {
			f.Intents = append(f.Intents, intent)
			r.Results[intent.ID] = world(intent)
		}
		r.Round++
	}
}

// nextAttempt returns the first request of the next attempt.
func nextAttempt(r gleaner.Request, v gleaner.Verdict) gleaner.Request {
	r.Time = r.Time.Add(v.WaitFor())
	r.Attempt++
	r.Round = 1
	r.Results = nil
	return r
}

// RespondWith returns a world in which every HTTP request has this response, and every
// other intent is Unavailable.
func RespondWith(status int, body string) func(gleaner.Intent) gleaner.Result {
	return func(intent gleaner.Intent) gleaner.Result {
		if intent.HTTP == nil {
			return ErrorResult(gleaner.ErrorUnavailable, "only HTTP is supported")
		}
		return gleaner.Result{HTTP: &gleaner.HTTPResult{Status: status, Body: body}}
	}
}

// ErrorResult returns the result of an intent that was not carried out.
func ErrorResult(reason gleaner.ErrorReason, message string) gleaner.Result {
	return gleaner.Result{Error: &gleaner.ResultError{Reason: reason, Message: message}}
}

// WithDeadline returns the request with a deadline after this duration.
func WithDeadline(r gleaner.Request, d time.Duration) gleaner.Request {
	at := r.Time.Add(d)
	r.Deadline = &at
	return r
}

// Object returns an object for the results of intents.
func Object(apiVersion, kind, namespace, name string) gleaner.Object {
	return hostabi.Object{APIVersion: apiVersion, Kind: kind, Metadata: gleaner.Metadata{
		Name: name, Namespace: namespace, UID: "uid-of-" + name, ResourceVersion: "1",
	}}
}
