// Package finalize writes a finalizer as steps, one after the other:
//
//	func finalizer(r gleaner.Request) (gleaner.Verdict, error) {
//		return finalize.Run(r, func(s *finalize.Steps) {
//			s.Call("bucket", gleaner.HTTPIntent{Method: "DELETE", URL: "https://s3.example.com/" + r.Object.Metadata.Name})
//			_, found := s.Call("look", gleaner.HTTPIntent{Method: "GET", URL: "https://s3.example.com/" + r.Object.Metadata.Name})
//			s.Until(!found, 30*time.Second, "the bucket is still there")
//		})
//	}
//
// A module does nothing itself: it asks the host, and is asked again with the
// results. So [Run] goes through the steps from the start each time. A step whose
// result is there returns it. The first whose result is not there asks for it,
// and stops the run. When all are through, the decision is Done.
//
// # A run that has stopped
//
// The function is not left when a run stops, as TinyGo has nothing to leave it
// with: the steps that are left do nothing, and return zero values. So it can be
// written as if each step blocked until it is done, and nothing is lost but time.
// Code in between that can't stand a zero value asks [Steps.Stopped] first. A loop
// that ends only when a step has a certain result must ask it too.
//
// # Attempts
//
// After Wait the steps begin anew, with no results: so steps have to be such that
// they can be repeated, as deleting can. One that is not goes into [Steps.Once],
// which is kept in the state. An attempt has 16 rounds, and so 15 steps that ask
// for something; those that depend on nothing go into [Steps.All], and take one round.
//
// # Errors
//
// What may go away by itself (Unavailable, Conflict, Expired, and HTTP's 429 and 5xx)
// becomes Wait, longer with each attempt, up to five minutes. What needs a human
// (NotGranted, Forbidden, Invalid) becomes Fail, with a reason that says what to
// write. NotFound is a result, where it can be one.
package finalize

import (
	"errors"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	// maxRounds is how often the host asks within an attempt. An Act in answer to
	// the last of them would not be carried out.
	maxRounds = 16

	// maxIdle is how many steps may be taken after a run has stopped. Whoever takes
	// more is in a loop that will not end.
	maxIdle = 100_000

	// soon is the wait between attempts of which the second only goes on with the
	// first.
	soon = time.Second
)

// Steps is a run: what a finalizer takes its steps with.
type Steps struct {
	request hostabi.Request
	memory  memory

	end     *hostabi.Verdict // why the run has stopped; nil: it goes on
	intents []hostabi.Intent // to be asked for
	asked   map[string]bool  // ids that this run has used
	prefix  string           // of ids, within Each
	scope   string           // of what is remembered, within Each: the same in every attempt
	latest  time.Time        // when to give up, and so until when to wait at most; zero: never
	idle    int
	err     error // a mistake of the finalizer's author
}

// Run takes the steps, and says what to answer: Act as long as a step has to ask
// for something, Done if all are through. The error is for what only the
// finalizer's author can mend, such as two steps of one id.
func Run(r hostabi.Request, f func(*Steps)) (hostabi.Verdict, error) {
	remembered, err := recall(r.State)
	if err != nil {
		return hostabi.Verdict{}, err
	}
	s := &Steps{request: r, memory: remembered, asked: map[string]bool{}}
	f(s)
	if s.err != nil {
		return hostabi.Verdict{}, s.err
	}
	return s.verdict()
}

// verdict is what the run has come to.
func (s *Steps) verdict() (hostabi.Verdict, error) {
	v := hostabi.Verdict{Decision: hostabi.DecisionDone}
	if s.end != nil {
		v = *s.end
	}
	if len(s.intents) != 0 && s.request.Round < maxRounds { // events ask for no round of their own until the end
		v = hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: s.intents}
	}
	if v.Decision != hostabi.DecisionAct && v.Decision != hostabi.DecisionWait {
		return v, nil
	}
	var err error
	v.State, err = s.memory.state(s.request.State)
	return v, err
}

// Request is what the run answers.
func (s *Steps) Request() hostabi.Request { return s.request }

// Stopped tells that the run has stopped: no step does anything any more.
func (s *Steps) Stopped() bool { return s.end != nil || s.err != nil }

// stopped is Stopped for the steps themselves. They are counted, or a loop that
// waits for what can't come any more would only end with the fuel.
func (s *Steps) stopped() bool {
	if !s.Stopped() {
		return false
	}
	if s.idle++; s.idle > maxIdle {
		panic("the run has stopped, and still takes steps: a loop over steps has to end when Stopped is true")
	}
	return true
}

// stop ends the run, unless it has ended.
func (s *Steps) stop(v hostabi.Verdict) {
	if s.Stopped() {
		return
	}
	v.Reason = shortened(v.Reason, hostabi.MaxReasonBytes)
	s.end = &v
}

// mistake ends the run with an error, which is for the finalizer's author.
func (s *Steps) mistake(text string) {
	if s.err == nil {
		s.err = errors.New(text)
	}
}

// ask gives the result of an intent; false if it has to be asked for first.
func (s *Steps) ask(id string, intent hostabi.Intent) (hostabi.Result, bool) {
	if s.stopped() {
		return hostabi.Result{}, false
	}
	result, there := s.result(id, &intent)
	switch {
	case there || s.Stopped():
		return result, there
	case s.request.Round >= maxRounds:
		s.Wait(soon, "all rounds of this attempt are used up")
		return hostabi.Result{}, false
	}
	if len(s.intents) < hostabi.MaxIntents { // or it is for the next round
		s.intents = append(s.intents, intent)
	}
	s.stop(hostabi.Verdict{Decision: hostabi.DecisionAct})
	return hostabi.Result{}, false
}

// result gives the result of an intent if it is there, and the intent its ID.
func (s *Steps) result(id string, intent *hostabi.Intent) (hostabi.Result, bool) {
	intent.ID = identifier(s.prefix + id)
	if s.asked[intent.ID] {
		s.mistake("two steps have the id " + intent.ID + ": give each step an id of its own")
		return hostabi.Result{}, false
	}
	s.asked[intent.ID] = true
	result, there := s.request.Results[intent.ID]
	return result, there
}
