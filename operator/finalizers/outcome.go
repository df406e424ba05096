package finalizers

import (
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

// A Reason is why a finalizer is removed, or is not.
type Reason string

// The reasons.
const (
	Done             Reason = "FinalizerDone"             // the module returned Done: the finalizer is removed
	Waiting          Reason = "FinalizerWaiting"          // the module returned Wait, or is waiting for another finalizer or its module
	Blocked          Reason = "FinalizerBlocked"          // the module waits because an intent failed
	Failed           Reason = "FinalizerFailed"           // the module returned Fail: manual action is required
	Fault            Reason = "FinalizerFault"            // the module failed, exceeded a limit, or returned an invalid verdict
	Released         Reason = "FinalizerReleased"         // the finalizer is removed, even if cleanup is incomplete
	DeadlineExceeded Reason = "FinalizerDeadlineExceeded" // the deadline has passed, and the object is kept
	NotReady         Reason = "FinalizerNotReady"         // the module can't be evaluated
	NotSelected      Reason = "FinalizerNotSelected"      // the finalizer does not select the object
	Circular         Reason = "FinalizerCircular"         // finalizers wait for each other
	Monitored        Reason = "FinalizerMonitored"        // the mode is Monitor: the verdict is not applied
	Attached         Reason = "FinalizerAttached"         // the finalizer is added
	HostError        Reason = "FinalizerError"            // the object could not be read or written
	RateLimited      Reason = "FinalizerRateLimited"      // the module's writes exceed the rate limit
)

// stuckReasons maps the reasons for which an object makes no progress to the reasons in status.
var stuckReasons = map[Reason]string{
	Failed: "Failed", Fault: "Fault", DeadlineExceeded: "DeadlineExceeded", NotReady: "NotReady", NotSelected: "NotSelected", Circular: "Circular",
	Monitored: "Monitor", HostError: "Error", RateLimited: "RateLimited", Blocked: "Blocked",
}

// noResponse is the reason in status while an intent is in flight for too long.
const noResponse = "NoResponse"

// yieldsToDeadline reports whether Overdue replaces the reason once the deadline has passed.
func (r Reason) yieldsToDeadline() bool {
	_, is := stuckReasons[r]
	return !is || r == Blocked
}

// An Outcome is the decision about one object, and its result.
type Outcome struct {
	Finalizer *policies.Finalizer
	Object    graph.Object
	Reason    Reason
	Message   string // for people
	Err       error  // of reading or writing

	// Removed is true if the finalizer was removed, and Lasted how long it kept the object.
	Removed bool
	HeldFor time.Duration

	// The evaluation, if there was one.
	Evaluated bool
	Verdict   hostabi.Verdict
	Fault     error
	Fuel      int64
	Rounds    int
	Duration  time.Duration
	Exchanges []policies.Exchange
	Intents   []IntentResult

	NextRetry time.Time // time of the next retry; zero: when something changes
}

// An IntentResult is an intent and its result.
type IntentResult struct {
	Intent hostabi.Intent
	Result hostabi.Result
}
