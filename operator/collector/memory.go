package collector

import (
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Memory is what is remembered about an object from one decision to the next. The zero
// Memory is that of an object that was not decided about.
type Memory struct {
	// Kept is set in companion mode if a policy or a pause has kept the object from the built-in
	// collector. That may not try again for a quarter of an hour, so Gleaner deletes it if
	// it has no owner by then.
	Kept bool

	wait wait
}

// wait is until when a policy has said to wait.
type wait struct {
	attempt int           // that ended in waiting; 0: there is no wait
	after   time.Duration // as the policy said
	due     time.Time
}

// Waiting reports whether a policy has said to wait.
func (m Memory) Waiting() bool { return m.wait.attempt != 0 }

// attempt returns the number of the attempt that is made now. An evaluation before the
// wait is over, since something has changed, belongs to the same attempt.
func (m Memory) attempt(now time.Time) int {
	switch {
	case !m.Waiting():
		return 1
	case now.Before(m.wait.due):
		return m.wait.attempt
	default:
		return m.wait.attempt + 1
	}
}

// Next returns the memory after a decision, and how long to wait from when it began. The
// same wait again does not prolong one that is not over.
func (m Memory) Next(d Decision) (next Memory, after time.Duration) {
	next = m
	if d.Plan.RequeueAfter > 0 || d.Situation.Kind == decide.Ownerless || d.Situation.Kind == decide.Held {
		next.wait, after = m.wait.next(d.Plan.RequeueAfter, d.Result.Attempt, d.Began)
	}
	switch {
	case !d.Companion:
	case d.Situation.Kind != decide.Ownerless:
		next.Kept = false
	case !d.Result.Enforced: // as it was before the policies were read
	case d.Plan.Reason == decide.PolicyFault, d.Plan.Reason == decide.PolicyWaiting, d.Plan.Reason == decide.DelayedByPolicy,
		d.Plan.Reason == decide.PolicyRateLimited:
		next.Kept = true
	}
	return next, after
}

func (w wait) next(after time.Duration, attempt int, now time.Time) (wait, time.Duration) {
	switch {
	case after <= 0:
		return wait{}, 0
	case w.attempt != 0 && w.after == after && now.Before(w.due):
		return w, w.due.Sub(now)
	default:
		return wait{attempt: attempt, after: after, due: now.Add(after)}, after
	}
}

// Memories are those of all objects. The zero value is ready to use. The methods may be
// called concurrently.
type Memories struct {
	mu sync.Mutex // covers of
	of map[graph.ID]Memory
}

// Get returns the memory of an object.
func (m *Memories) Get(id graph.ID) Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[id]
}

// Commit replaces the memory of an object by the one after a decision, and returns how
// long to wait.
func (m *Memories) Commit(id graph.ID, d Decision) (after time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, after := m.of[id].Next(d)
	m.set(id, next)
	return after
}

// Keep remembers that the built-in collector was denied to delete an object; see Memory.Kept.
func (m *Memories) Keep(id graph.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := m.of[id]
	kept.Kept = true
	m.set(id, kept)
}

// ForgetWait forgets that a policy has said to wait.
func (m *Memories) ForgetWait(id graph.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(id, Memory{Kept: m.of[id].Kept})
}

// Forget forgets an object that is gone.
func (m *Memories) Forget(id graph.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, id)
}

// set is for callers that hold mu.
func (m *Memories) set(id graph.ID, to Memory) {
	if to == (Memory{}) {
		delete(m.of, id)
		return
	}
	if m.of == nil {
		m.of = map[graph.ID]Memory{}
	}
	m.of[id] = to
}
