package preview

import (
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// history is what has happened in a simulation.
type history struct {
	current       graph.ID                    // the object being processed
	touched       map[graph.ID]struct{}       // objects that were changed or decided about
	decisions     map[graph.ID][]record.Entry // in order
	uncertainties map[graph.ID][]string       // why a decision is uncertain
	deletedWith   map[graph.ID]deletedWith    // objects that are deleted with their namespace or type
	deletions     map[graph.ID]deletion
	orphaning     map[graph.ID]struct{} // objects that orphaned their dependents
	foreground    map[graph.ID]struct{} // objects that were deleted in the foreground
	waitCounts    map[graph.ID]int      // how often a policy returned Wait after the first phase
	phase         int                   // 0 is what happens immediately
}

// deletedWith is the reason of an object that is not deleted because of its owners.
type deletedWith struct {
	by     graph.ID
	reason string
}

// deletion is when an object was deleted.
type deletion struct {
	phase int
	at    time.Time
}

func newHistory() *history {
	return &history{
		touched: map[graph.ID]struct{}{}, decisions: map[graph.ID][]record.Entry{}, uncertainties: map[graph.ID][]string{},
		deletedWith: map[graph.ID]deletedWith{}, deletions: map[graph.ID]deletion{}, orphaning: map[graph.ID]struct{}{},
		foreground: map[graph.ID]struct{}{}, waitCounts: map[graph.ID]int{},
	}
}

func (h *history) touch(id graph.ID) { h.touched[id] = struct{}{} }

// addUncertainty records that the decision about the current object is uncertain.
func (h *history) addUncertainty(reason string) {
	if !slices.Contains(h.uncertainties[h.current], reason) {
		h.uncertainties[h.current] = append(h.uncertainties[h.current], reason)
	}
}

// addEvent records deletions and their propagation.
func (h *history) addEvent(e graph.Event, now time.Time) {
	switch e := e.(type) {
	case graph.Deleted:
		id := graph.IDOf(e.Object.UID)
		h.touch(id)
		h.deletions[id] = deletion{h.phase, now}
	case graph.Seen:
		id := graph.IDOf(e.Object.UID)
		h.touch(id)
		if o := e.Object; o.Terminating && o.Orphan && !o.Held {
			h.orphaning[id] = struct{}{}
		} else if o.Terminating && o.Foreground && !o.Held {
			h.foreground[id] = struct{}{}
		}
	}
}

// last returns the last decision about an object.
func (h *history) last(id graph.ID) *record.Entry {
	entries := h.decisions[id]
	if len(entries) == 0 {
		return nil
	}
	return &entries[len(entries)-1]
}

// decided reports whether there is a decision about an object for a reason.
func (h *history) decided(id graph.ID, reason decide.Reason) bool {
	return slices.ContainsFunc(h.decisions[id], func(e record.Entry) bool { return e.Reason == reason })
}

// hasRacingOwners reports whether an object has both owners that orphan it and owners that delete it.
// In a cluster any of them may be processed first.
func (h *history) hasRacingOwners(item survey.Item) bool {
	orphaned, deleted := false, false
	for _, ref := range item.Meta.OwnerReferences {
		owner := graph.IDOf(ref.UID)
		_, orphans := h.orphaning[owner]
		_, goes := h.deletions[owner]
		orphaned, deleted = orphaned || orphans, deleted || goes && !orphans
	}
	return orphaned && deleted
}
