package collector

import (
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// ownerless is a decision to wait about an object without owners.
func ownerless(m Memory, began time.Time, after time.Duration) Decision {
	return Decision{
		Began: began, Situation: decide.Situation{Kind: decide.Ownerless},
		Result: decide.PolicyResult{Attempt: m.attempt(began), Enforced: true}, Plan: decide.Plan{Reason: decide.PolicyWaiting, RequeueAfter: after},
	}
}

func TestMemory_AnEvaluationBeforeTheWaitIsOverBelongsToTheSameAttempt(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m Memory
	if m.attempt(now) != 1 || m.Waiting() {
		t.Errorf("the first attempt is %d", m.attempt(now))
	}
	m, after := m.Next(ownerless(m, now, time.Minute))
	if after != time.Minute || !m.Waiting() {
		t.Errorf("it waits for %s", after)
	}
	now = now.Add(20 * time.Second)
	if m.attempt(now) != 1 {
		t.Errorf("attempt %d before the wait is over", m.attempt(now))
	}
	if m, after = m.Next(ownerless(m, now, time.Minute)); after != 40*time.Second {
		t.Errorf("the same wait is prolonged to %s", after)
	}
	now = now.Add(40 * time.Second)
	if m.attempt(now) != 2 {
		t.Errorf("attempt %d once the wait is over", m.attempt(now))
	}
	if m, after = m.Next(ownerless(m, now, time.Minute)); after != time.Minute || m.attempt(now) != 2 {
		t.Errorf("attempt %d waits for %s", m.attempt(now), after)
	}
	if m, after = m.Next(ownerless(m, now, 0)); after != 0 || m.Waiting() {
		t.Errorf("after a decision without a wait it waits for %s", after)
	}
}

func TestMemory_ACompanionRemembersWhatAPolicyHasKept(t *testing.T) {
	now := time.Now()
	kept := func(companion bool, change func(*Decision)) bool {
		d := ownerless(Memory{}, now, time.Minute)
		d.Companion = companion
		change(&d)
		m, _ := Memory{Kept: true}.Next(d)
		return m.Kept
	}
	if m, _ := (Memory{}).Next(ownerless(Memory{}, now, time.Minute)); m.Kept {
		t.Error("the only collector remembers it")
	}
	if !kept(true, func(*Decision) {}) {
		t.Error("it is forgotten while the policy waits")
	}
	if !kept(true, func(d *Decision) { d.Result.Enforced, d.Plan.Reason = false, decide.NothingToDo }) {
		t.Error("it is forgotten before the policies were read")
	}
	if kept(true, func(d *Decision) { d.Situation.Kind = decide.Settled }) {
		t.Error("it is remembered although the object has an owner")
	}
}

func TestMemories_OfNothingTakeNoSpace(t *testing.T) {
	var m Memories
	id, now := graph.IDOf("u"), time.Now()
	m.Commit(id, ownerless(m.Get(id), now, time.Minute))
	if len(m.of) != 1 || !m.Get(id).Waiting() {
		t.Errorf("got %+v", m.of)
	}
	m.Commit(id, ownerless(m.Get(id), now, 0))
	if len(m.of) != 0 {
		t.Errorf("got %+v", m.of)
	}
	m.Commit(id, ownerless(m.Get(id), now, time.Minute))
	m.ForgetWait(id)
	m.Forget(id)
	if len(m.of) != 0 {
		t.Errorf("got %+v", m.of)
	}
}
