package finalize

import (
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Wait stops the run. The next attempt starts after the given time: 30s if it is 0.
func (s *Steps) Wait(after time.Duration, reason string) {
	if after <= 0 {
		after = time.Duration(hostabi.DefaultWait)
	}
	if left := s.giveUpAt.Sub(s.req.Time); !s.giveUpAt.IsZero() && left < after {
		after = left
	}
	after = min(max(after, time.Duration(hostabi.MinWait)), time.Duration(hostabi.MaxDuration))
	s.stop(hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(after), Reason: reason})
}

// Until waits unless a condition holds. The steps before it are repeated each time.
func (s *Steps) Until(condition bool, every time.Duration, reason string) {
	if !condition {
		s.Wait(every, reason)
	}
}

// Fail stops the run permanently: the object is kept until someone intervenes.
func (s *Steps) Fail(reason string) {
	s.stop(hostabi.Verdict{Decision: hostabi.DecisionFail, Reason: reason})
}

// Done stops the run, and removes the finalizer.
func (s *Steps) Done(reason string) {
	s.stop(hostabi.Verdict{Decision: hostabi.DecisionDone, Reason: reason})
}

// Settings decodes the settings. If they are invalid, the run fails.
func (s *Steps) Settings(into any) {
	if s.stopped() {
		return
	}
	if err := s.req.DecodeSettings(into); err != nil {
		s.Fail(err.Error())
	}
}

// Deadline returns the time that is left before the object's deadline; zero if it
// has none. It is for [Steps.GiveUpBy].
func (s *Steps) Deadline(left time.Duration) time.Time {
	if s.req.Deadline == nil {
		return time.Time{}
	}
	return s.req.Deadline.Add(-left)
}

// AfterDeletion returns the time d after the object was deleted. It is for
// [Steps.GiveUpBy].
func (s *Steps) AfterDeletion(d time.Duration) time.Time {
	if s.req.Object.Metadata.DeletionTimestamp == nil {
		return time.Time{}
	}
	return s.req.Object.Metadata.DeletionTimestamp.Add(d)
}

// GiveUpBy runs f instead of the following steps once a time is reached. After f,
// the decision is Done, unless f fails or waits. Until then, no Wait extends beyond
// the time. A zero time is never reached.
//
//	s.GiveUpBy(s.Deadline(time.Minute), func() {
//		s.Warn("gave-up", "BucketLeft", "the bucket did not become empty in time")
//	})
func (s *Steps) GiveUpBy(at time.Time, f func()) {
	if s.stopped() || at.IsZero() {
		return
	}
	if s.req.Time.Before(at) {
		if s.giveUpAt.IsZero() || at.Before(s.giveUpAt) {
			s.giveUpAt = at
		}
		return
	}
	f()
	s.Done("gave up: not done by " + at.UTC().Format(time.RFC3339))
}

// All runs branches that do not depend on each other, and requests their intents in
// the same round. The steps of one branch are sequential. The run continues when
// all branches are finished; if one of them fails or waits, the pending intents of
// the others are carried out first.
func (s *Steps) All(branches ...func()) {
	if s.stopped() {
		return
	}
	var ends []hostabi.Verdict
	for _, f := range branches {
		f()
		if s.err != nil {
			return
		}
		if s.end != nil {
			ends = append(ends, *s.end)
			s.end = nil
		}
	}
	s.end = firstToApply(ends)
}

// firstToApply returns the verdict that takes precedence: Act, then Fail, then the
// shortest Wait, then Done. Nil continues the run.
func firstToApply(ends []hostabi.Verdict) *hostabi.Verdict {
	rank := func(v hostabi.Verdict) int {
		switch v.Decision {
		case hostabi.DecisionAct:
			return 0
		case hostabi.DecisionFail:
			return 1
		case hostabi.DecisionWait:
			return 2
		default:
			return 3
		}
	}
	var best *hostabi.Verdict
	for i := range ends {
		v := &ends[i]
		if best == nil || rank(*v) < rank(*best) || rank(*v) == rank(*best) && v.After < best.After {
			best = v
		}
	}
	return best
}

// Once runs steps that must not be repeated in later attempts. That they are
// finished is kept in the state, their results are not: save what later steps need
// with [Steps.Remember].
//
// If the operator stops after a step and before the state is saved, the step is
// repeated. If that matters, use the request's IdempotencyKey.
func (s *Steps) Once(id string, f func()) {
	name := identifier(s.scope + id)
	if s.stopped() || s.saved.isDone(name) {
		return
	}
	if f(); !s.Stopped() {
		s.saved.Done = append(s.saved.Done, name)
	}
}

// SaveState saves a value for later runs, which read it with [Steps.Recall]. It
// replaces the previous value. Together with the state of the steps it may have 4
// KiB of JSON.
func (s *Steps) SaveState(state any) {
	if s.stopped() {
		return
	}
	if err := s.saved.save(state); err != nil {
		s.fail(err.Error())
	}
}

// LoadState reads the saved value, and reports whether there is one.
func (s *Steps) LoadState(into any) bool {
	if s.stopped() || len(s.saved.Own) == 0 {
		return false
	}
	if err := s.saved.load(into); err != nil {
		s.fail(err.Error())
		return false
	}
	return true
}
