package gleanertest

import (
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
)

// maxRounds is how often Gleaner asks within an attempt.
const maxRounds = 16

// Finalization is what came of an attempt.
type Finalization struct {
	Verdict gleaner.Verdict  // the last one, which is not Act
	Intents []gleaner.Intent // all that was asked for, in this order
	Rounds  int              // how often the handler was asked
	Log     []Line

	// Next is what the handler is asked in the next attempt, after Wait: later, and
	// with what was to be remembered.
	Next gleaner.Request
}

// Finalize puts a request to a finalizer, and asks again with the results of
// its intents until its decision is another than Act. What comes of an intent, world says. Each
// round is a [Call]. The error is what Gleaner would hold against the module: that
// it still acts when the rounds of an attempt are used up is part of that.
func Finalize(handler gleaner.Handler, request gleaner.Request, world func(gleaner.Intent) gleaner.Result) (Finalization, error) {
	var f Finalization
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
			f.Next = next(r, f.Verdict)
			return f, nil
		}
		if r.Round >= maxRounds {
			return f, fmt.Errorf("round %d: it still acts, and an attempt has %d rounds: decide Wait, and go on in the next one", r.Round, maxRounds)
		}
		for _, intent := range f.Verdict.Intents {
			f.Intents = append(f.Intents, intent)
			r.Results[intent.ID] = world(intent)
		}
		r.Round++
	}
}

// next is the first request of the attempt after this one.
func next(r gleaner.Request, v gleaner.Verdict) gleaner.Request {
	r.Time = r.Time.Add(v.WaitFor())
	r.Attempt++
	r.Round = 1
	r.Results = nil
	return r
}

// Answers is a world in which every HTTP request gets this response, and whatever
// else is asked for is Unavailable.
func Answers(status int, body string) func(gleaner.Intent) gleaner.Result {
	return func(intent gleaner.Intent) gleaner.Result {
		if intent.HTTP == nil {
			return Refuses(gleaner.ErrorUnavailable, "this world has HTTP alone")
		}
		return gleaner.Result{HTTP: &gleaner.HTTPResult{Status: status, Body: body}}
	}
}

// Refuses is the result of an intent that was not carried out.
func Refuses(reason gleaner.ErrorReason, message string) gleaner.Result {
	return gleaner.Result{Error: &gleaner.ResultError{Reason: reason, Message: message}}
}

// DeadlineIn gives a request a deadline that is so far away.
func DeadlineIn(r gleaner.Request, d time.Duration) gleaner.Request {
	at := r.Time.Add(d)
	r.Deadline = &at
	return r
}

// Object is one that intents can have for their result.
func Object(apiVersion, kind, namespace, name string) gleaner.Object {
	return hostabi.Object{APIVersion: apiVersion, Kind: kind, Metadata: gleaner.Metadata{
		Name: name, Namespace: namespace, UID: "uid-of-" + name, ResourceVersion: "1",
	}}
}
