package finalize

import (
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Wait stops the run, and has the steps taken anew after a while: 30s if it is 0.
func (s *Steps) Wait(after time.Duration, reason string) {
	if after <= 0 {
		after = time.Duration(hostabi.DefaultWait)
	}
	if left := s.latest.Sub(s.request.Time); !s.latest.IsZero() && left < after {
		after = left
	}
	after = min(max(after, time.Duration(hostabi.MinWait)), time.Duration(hostabi.MaxDuration))
	s.stop(hostabi.Verdict{Decision: hostabi.DecisionWait, After: hostabi.Duration(after), Reason: reason})
}

// Until waits unless a condition holds. The steps before it are what polls.
func (s *Steps) Until(condition bool, every time.Duration, reason string) {
	if !condition {
		s.Wait(every, reason)
	}
}

// Fail stops the run for good: the object stays until a human has dealt with it.
func (s *Steps) Fail(reason string) {
	s.stop(hostabi.Verdict{Decision: hostabi.DecisionFail, Reason: reason})
}

// Done stops the run, and lets the object go.
func (s *Steps) Done(reason string) {
	s.stop(hostabi.Verdict{Decision: hostabi.DecisionDone, Reason: reason})
}

// Settings reads the settings. Those that can't be read are a reason to Fail.
func (s *Steps) Settings(into any) {
	if s.stopped() {
		return
	}
	if err := s.request.DecodeSettings(into); err != nil {
		s.Fail(err.Error())
	}
}

// Deadline is when to give up so as to have some time left before the object's
// deadline; zero if it has none. It is for [Steps.GiveUpBy].
func (s *Steps) Deadline(left time.Duration) time.Time {
	if s.request.Deadline == nil {
		return time.Time{}
	}
	return s.request.Deadline.Add(-left)
}

// SinceDeletion is a while after the object was deleted. It is for
// [Steps.GiveUpBy].
func (s *Steps) SinceDeletion(d time.Duration) time.Time {
	if s.request.Object.Metadata.DeletionTimestamp == nil {
		return time.Time{}
	}
	return s.request.Object.Metadata.DeletionTimestamp.Add(d)
}

// GiveUpBy says what to do when a time has come and the steps after it are not
// through: the function's steps are taken in place of those, and after them the
// object may go, unless they Fail or Wait. Until then no Wait is longer than up to that time. A zero
// time never comes.
//
//	s.GiveUpBy(s.Deadline(time.Minute), func() {
//		s.Warn("gave-up", "BucketLeft", "the bucket did not become empty in time")
//	})
func (s *Steps) GiveUpBy(at time.Time, f func()) {
	if s.stopped() || at.IsZero() {
		return
	}
	if s.request.Time.Before(at) {
		if s.latest.IsZero() || at.Before(s.latest) {
			s.latest = at
		}
		return
	}
	f()
	s.Done("gave up: it was to be done by " + at.UTC().Format(time.RFC3339))
}

// All takes steps that do not depend on each other, and asks for what they need
// at once. Those of one function are taken in turn. The run goes on when all are
// through; if one of them fails or waits, then the others are first asked for
// what they still need.
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
	s.end = first(ends)
}

// first is the one of several ends that counts: to act, or else to fail, or else
// the shortest wait, or else to be done. None goes on.
func first(ends []hostabi.Verdict) *hostabi.Verdict {
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

// Once takes steps that are not to be taken again once they are through, in
// later attempts either: it is kept in the state. What a later step needs of
// their results they have to [Steps.Remember].
//
// If the operator stops between a step and the answer that has it in the state, then the step is
// taken twice: where that matters, hand over the request's IdempotencyKey.
func (s *Steps) Once(id string, f func()) {
	name := identifier(s.scope + id)
	if s.stopped() || s.memory.isDone(name) {
		return
	}
	if f(); !s.Stopped() {
		s.memory.Done = append(s.memory.Done, name)
	}
}

// Remember leaves something for later runs to [Steps.Recall], in place of what
// was remembered before. With what the steps themselves remember it may have 4 KiB of JSON.
func (s *Steps) Remember(state any) {
	if s.stopped() {
		return
	}
	if err := s.memory.remember(state); err != nil {
		s.mistake(err.Error())
	}
}

// Recall reads what was remembered; false if nothing was.
func (s *Steps) Recall(into any) bool {
	if s.stopped() || len(s.memory.Own) == 0 {
		return false
	}
	if err := s.memory.recall(into); err != nil {
		s.mistake(err.Error())
		return false
	}
	return true
}
