package finalize

import (
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// Reason is why an object is let go, or is not.
type Reason string

// The reasons.
const (
	Done     Reason = "FinalizerDone"     // the module is done: the finalizer is taken off
	Waits    Reason = "FinalizerWaits"    // the module waits for something
	Blocked  Reason = "FinalizerBlocked"  // the module waits, since what it asked for failed
	Failed   Reason = "FinalizerFailed"   // the module has given up, and somebody has to look
	AtFault  Reason = "FinalizerAtFault"  // the module did not answer as it must
	Released Reason = "FinalizerReleased" // the finalizer is taken off, whatever was left to be done
	Overdue  Reason = "FinalizerOverdue"  // its deadline is over, and it is kept
	NotReady Reason = "FinalizerNotReady" // nobody can be asked
	Unmeant  Reason = "FinalizerUnmeant"  // the finalizer is not for this object
	Circular Reason = "FinalizerCircular" // it waits for finalizers that wait for it
	Watched  Reason = "FinalizerWatched"  // the mode is Monitor: nothing is done
	Attached Reason = "FinalizerAttached" // the finalizer is put on
	Troubled Reason = "FinalizerTroubled" // the object could not be read or written
	Limited  Reason = "FinalizerLimited"  // its module asks for more writes than there may be in a time
)

// stuck are the reasons after which an object gets no further of itself, and what
// status calls them.
var stuck = map[Reason]string{
	Failed: "Failed", AtFault: "Fault", Overdue: "DeadlineExceeded", NotReady: "NotReady", Unmeant: "NotSelected", Circular: "Circular",
	Watched: "Monitor", Troubled: "Unreachable", Limited: "RateLimited", Blocked: "Blocked",
}

// noAnswer is what status calls it that an intent is in flight, and not answered.
const noAnswer = "NoAnswer"

// overtaken reports whether a deadline that is over is told in place of a reason.
func (r Reason) overtaken() bool {
	_, is := stuck[r]
	return !is || r == Blocked
}

// Note is what was decided about one object, and what became of it.
type Note struct {
	Finalizer *policies.Finalizer
	Object    graph.Object
	Reason    Reason
	Message   string // for people
	Err       error  // of reading or writing

	// Taken tells that the finalizer was taken off, and Lasted how long it kept the
	// object.
	Taken  bool
	Lasted time.Duration

	// What the module said, if it was asked.
	Asked     bool
	Verdict   hostabi.Verdict
	Fault     error
	Fuel      int64
	Rounds    int
	Took      time.Duration
	Exchanges []policies.Exchange
	Intents   []Carried

	Until time.Time // when it is looked at again; zero: when something changes
}

// Carried is an intent, and what came of it.
type Carried struct {
	Intent hostabi.Intent
	Result hostabi.Result
}
