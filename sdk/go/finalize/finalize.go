// Package finalize writes a finalizer as a sequence of steps:
//
//	func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
//		return finalize.Run(r, func(s *finalize.Steps) {
//			s.Call("bucket", gleaner.HTTPIntent{Method: "DELETE", URL: "https://s3.example.com/" + r.Object.Metadata.Name})
//			_, found := s.Call("look", gleaner.HTTPIntent{Method: "GET", URL: "https://s3.example.com/" + r.Object.Metadata.Name})
//			s.Until(!found, 30*time.Second, "the bucket still exists")
//		})
//	}
//
// A module does no I/O: it requests intents, and is evaluated again with their
// results. So [Run] executes the steps from the start each time. A step that has a
// result returns it. The first step without a result requests it, and stops the
// run. When all steps are finished, the decision is Done.
//
// # Stopped runs
//
// The function does not return when a run stops, since TinyGo has no way to unwind
// it: the remaining steps do nothing, and return zero values. So it can be written
// as if each step blocked until it is finished. Code that cannot handle a zero
// value checks [Steps.Stopped] first, and so must a loop that ends only when a step
// has a certain result.
//
// # Attempts
//
// After Wait the steps start again, without results: so steps must be repeatable,
// as deletes are. Put others into [Steps.Once], which keeps its progress in the
// state. An attempt has 16 rounds, and so at most 15 sequential steps with intents;
// independent steps in [Steps.All] share a round.
//
// # Errors
//
// Temporary errors (Unavailable, Conflict, Expired, and HTTP 429 and 5xx) become
// Wait, with a delay that grows with each attempt, up to five minutes. Errors that
// need intervention (NotGranted, Forbidden, Invalid) become Fail, with a reason
// that says what to change. NotFound is a result where it can be one.
package finalize

import (
	"errors"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	// maxRounds is the number of rounds within an attempt. An Act in the last of
	// them would not be carried out.
	maxRounds = 16

	// maxCallsAfterStop is the number of steps that may be called after a run has stopped.
	// More than that is an infinite loop.
	maxCallsAfterStop = 100_000

	// nextAttemptDelay is the wait between attempts if the second one just continues the first.
	nextAttemptDelay = time.Second
)

// Steps is a run of a finalizer. Its methods are the steps.
type Steps struct {
	req   hostabi.Request
	saved savedState

	end            *hostabi.Verdict // why the run has stopped; nil: it continues
	intents        []hostabi.Intent // to request
	usedIDs        map[string]bool  // ids that this run has used
	prefix         string           // of ids, within Each
	scope          string           // of ids in the state, within Each: the same in every attempt
	giveUpAt       time.Time        // when to give up, which limits waits; zero: never
	callsAfterStop int
	err            error // a bug in the finalizer
}

// Run executes the steps and returns the verdict: Act if a step has intents to
// carry out, Done if all steps are finished. The error reports a bug in the
// finalizer, such as two steps with the same id.
func Run(r hostabi.Request, f func(*Steps)) (hostabi.Verdict, error) {
	remembered, err := decodeState(r.State)
	if err != nil {
		return hostabi.Verdict{}, err
	}
	s := &Steps{req: r, saved: remembered, usedIDs: map[string]bool{}}
	f(s)
	if s.err != nil {
		return hostabi.Verdict{}, s.err
	}
	return s.verdict()
}

// verdict returns the verdict of the run.
func (s *Steps) verdict() (hostabi.Verdict, error) {
	v := hostabi.Verdict{Decision: hostabi.DecisionDone}
	if s.end != nil {
		v = *s.end
	}
	if len(s.intents) != 0 && s.req.Round < maxRounds { // events alone do not start a round before the end
		v = hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: s.intents}
	}
	if v.Decision != hostabi.DecisionAct && v.Decision != hostabi.DecisionWait {
		return v, nil
	}
	var err error
	v.State, err = s.saved.state(s.req.State)
	return v, err
}

// Request returns the request.
func (s *Steps) Request() hostabi.Request { return s.req }

// Stopped reports whether the run has stopped. Steps then do nothing.
func (s *Steps) Stopped() bool { return s.end != nil || s.err != nil }

// stopped is Stopped for the steps themselves. It counts calls, so that an infinite
// loop ends before the fuel does.
func (s *Steps) stopped() bool {
	if !s.Stopped() {
		return false
	}
	if s.callsAfterStop++; s.callsAfterStop > maxCallsAfterStop {
		panic("steps are called after the run has stopped: a loop over steps must end when Stopped is true")
	}
	return true
}

// stop ends the run, unless it has ended already.
func (s *Steps) stop(v hostabi.Verdict) {
	if s.Stopped() {
		return
	}
	v.Reason = truncate(v.Reason, hostabi.MaxReasonBytes)
	s.end = &v
}

// fail ends the run with an error, for a bug in the finalizer.
func (s *Steps) fail(text string) {
	if s.err == nil {
		s.err = errors.New(text)
	}
}

// request returns the result of an intent, or requests it and returns false.
func (s *Steps) request(id string, intent hostabi.Intent) (hostabi.Result, bool) {
	if s.stopped() {
		return hostabi.Result{}, false
	}
	result, there := s.result(id, &intent)
	switch {
	case there || s.Stopped():
		return result, there
	case s.req.Round >= maxRounds:
		s.Wait(nextAttemptDelay, "all rounds of this attempt were used")
		return hostabi.Result{}, false
	}
	if len(s.intents) < hostabi.MaxIntents { // otherwise in the next round
		s.intents = append(s.intents, intent)
	}
	s.stop(hostabi.Verdict{Decision: hostabi.DecisionAct})
	return hostabi.Result{}, false
}

// result returns the result of an intent, if there is one, and sets the intent's
// ID.
func (s *Steps) result(id string, intent *hostabi.Intent) (hostabi.Result, bool) {
	intent.ID = identifier(s.prefix + id)
	if s.usedIDs[intent.ID] {
		s.fail("two steps have id " + intent.ID + ": use a unique id for each step")
		return hostabi.Result{}, false
	}
	s.usedIDs[intent.ID] = true
	result, there := s.req.Results[intent.ID]
	return result, there
}
