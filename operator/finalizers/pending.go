package finalizers

import (
	"time"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/policies"
)

// Bounds of the interval between evaluations caused by changes of the object. It grows
// only while the changes follow writes of the module itself.
const (
	minEvaluationInterval = time.Second
	maxEvaluationInterval = time.Minute
)

// A pendingObject is the in-memory state of one object that waits for the finalizer. It is lost
// when the process ends; the state annotation is not.
type pendingObject struct {
	key    key
	object graph.Object

	// These are of the stored pendingObject only.
	seen      string // the resourceVersion that a watch or a list has shown last; empty: none
	evaluated bool   // an evaluation has begun, which may have written the object

	evaluatedBy    *policies.Finalizer // version used for the last evaluation; nil if another outcome was recorded since
	fingerprint    string              // of the object at the last evaluation, see fingerprint
	lastEvaluation time.Time           // time of the last evaluation
	wrote          bool                // the last evaluation wrote objects
	selfTriggered  int                 // number of consecutive changes that followed such writes
	nextRetry      time.Time           // time of the next evaluation; zero: when something changes
	attempt        int
	savedState     objectstate.FinalizerState // used where the object can't have the annotation
	failures       int                        // consecutive
	rateLimited    int                        // consecutive times that the rate limit was hit

	inFlight inFlightIntent

	reason   Reason
	message  string
	since    time.Time // when the reason was first reported
	deadline time.Time // zero: none
	deleted  time.Time // zero: not read yet
}

// overdue reports whether the object's deadline has passed.
func (t *pendingObject) overdue(now time.Time) bool {
	return !t.deadline.IsZero() && !now.Before(t.deadline)
}

// countSelfTriggered returns the number of consecutive changes that followed writes of the module:
// most likely the module triggers itself.
func (t *pendingObject) countSelfTriggered(fingerprint string) int {
	if t.wrote && fingerprint != t.fingerprint {
		return t.selfTriggered + 1
	}
	return 0
}

// evaluationInterval returns the minimum interval between evaluations of a changing object,
// given the delay of the first retry.
func (t *pendingObject) evaluationInterval(retryInitial time.Duration) time.Duration {
	initial := min(minEvaluationInterval, retryInitial)
	if t.wrote {
		return backoff(initial, t.selfTriggered, maxEvaluationInterval)
	}
	return initial
}

// requeueAfter returns the delay until due or the deadline, whichever is first; 0: when
// something changes.
func (t *pendingObject) requeueAfter(due, now time.Time) time.Duration {
	d := t.deadline
	if !d.IsZero() && !t.overdue(now) && (due.IsZero() || d.Before(due)) {
		due = d
	}
	if due.IsZero() {
		return 0
	}
	return max(due.Sub(now), time.Millisecond)
}

// backoff returns d doubled the given number of times, at most longest.
func backoff(d time.Duration, times int, longest time.Duration) time.Duration {
	for ; times > 0 && d < longest; times-- {
		d = min(2*d, longest)
	}
	return min(d, longest)
}
