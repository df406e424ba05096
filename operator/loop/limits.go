package loop

import (
	"time"

	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
)

// limits bound what policies and finalizers have written, each of them, and all of them
// about the objects of one namespace. What is written once for each object, such as the
// removal of a finalizer, is not counted. A nil limit is none.
type limits struct {
	states  *writelimit.Limiter // states that modules leave on objects
	effects *writelimit.Limiter // creates, deletes, patches and HTTP requests that change something
	events  *writelimit.Limiter // events that modules ask for
	told    *writelimit.Limiter // log lines, and events, of what they decide while nothing is written
}

func newLimits() limits {
	return limits{
		states:  writelimit.New(writelimit.Rate{PerSecond: 20, Burst: 200}, writelimit.Rate{PerSecond: 10, Burst: 100}),
		effects: writelimit.New(writelimit.Rate{PerSecond: 200, Burst: 2000}, writelimit.Rate{PerSecond: 50, Burst: 1000}),
		events:  writelimit.New(writelimit.Rate{PerSecond: 5, Burst: 50}, writelimit.Rate{PerSecond: 5, Burst: 50}),
		told:    writelimit.New(writelimit.Rate{PerSecond: 20, Burst: 500}, writelimit.Rate{PerSecond: 20, Burst: 500}),
	}
}

// limitedDoublings is how often the wait of an object is doubled whose state is not to be
// written yet.
const limitedDoublings = 6

// limit has an object wait whose policy has its state written more often than it may.
// The first state of an object is written in any case: it says since when it waits.
func (l *Loop) limit(o consult.Opinion, j decide.Judgement, plan decide.Plan) decide.Plan {
	remember, ok := plan.Action.(decide.Remember)
	if !ok || plan.After == 0 || j.Remembered.UID == "" {
		return plan
	}
	policy := l.by(o)
	wait := l.limits.states.Take(policy, remember.Object.Namespace, 1, l.now())
	if wait == 0 {
		return plan
	}
	l.metrics.limit(policy, "states")
	if l.keeper != nil {
		l.keeper.Limited(policy)
	}
	return decide.Plan{Reason: decide.PolicyLimited, After: max(wait, plan.After, time.Second<<min(j.Attempt, limitedDoublings))}
}

// tells reports whether a decision is to be told in the log and by an event. What writes
// nothing but a state can be decided over and over, each time for another reason.
func (l *Loop) tells(e record.Entry) bool {
	if e.Policy == "" || e.Action != record.None && e.Action != record.Remember {
		return true
	}
	if l.limits.told.Take(e.Policy, e.Object.Namespace, 1, e.Time) == 0 {
		return true
	}
	l.metrics.limit(e.Policy, "log")
	return false
}
