package order

import (
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// NotBegun is the wave of an owner of which no dependent is deleted yet.
const NotBegun = -1

// State is how far the ordered deletion of an owner's dependents is.
type State struct {
	Order Order
	Wave  int // the wave that is being deleted, with all earlier ones; NotBegun: none
}

// Status is the status of an ordered deletion for the dependents of one kind.
type Status struct {
	Started bool // their wave, or a later one, is being deleted
	Message string
}

// Progress tracks the ordered deletions of owners' dependents. It has an entry for each owner for which
// policies have been evaluated since the process started. It is in memory only: the decision is in the owner's state annotation, and the
// graph shows what is left. The zero value is ready to use. Its methods may be called concurrently.
type Progress struct {
	mu sync.Mutex // covers of
	of map[graph.ID]State
}

// Set replaces the state of an owner.
func (p *Progress) Set(owner graph.ID, s State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[graph.ID]State{}
	}
	p.of[owner] = s
}

// Forget forgets an owner that is gone, or has no hold any more.
func (p *Progress) Forget(owner graph.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, owner)
}

// Clear forgets all owners.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.of)
}

// Get returns the state of an owner. It returns false if nothing was decided about its dependents since
// the start.
func (p *Progress) Get(owner graph.ID) (State, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.of[owner]
	return s, known
}

// IsOrdered reports whether an owner's dependents are deleted in order.
func (p *Progress) IsOrdered(owner graph.ID) bool {
	s, known := p.Get(owner)
	return known && s.isOrdered()
}

// isOrdered reports whether there is an order, be it without waves.
func (s State) isOrdered() bool { return len(s.Order.Waves) != 0 || s.Order.GracePeriodSeconds != nil }

// Kinds returns the kinds in the waves of an owner's order.
func (p *Progress) Kinds(owner graph.ID) []schema.GroupKind {
	s, _ := p.Get(owner)
	return s.Order.Kinds()
}

// StatusOf returns the status of an owner's ordered deletion for dependents of a kind. It returns false if the
// owner's dependents are not deleted in order.
func (p *Progress) StatusOf(owner graph.ID, dependent schema.GroupKind) (Status, bool) {
	s, known := p.Get(owner)
	switch {
	case !known || !s.isOrdered():
		return Status{}, false
	case slices.Contains(s.Order.Kept, dependent):
		return Status{Message: "its dependents are deleted in order, and those of this kind are kept"}, true
	case s.Wave == NotBegun && len(s.Order.Waves) == 0:
		return Status{Message: "everything below it is deleted with a grace period, which has not started"}, true
	case len(s.Order.Waves) == 0:
		return Status{Started: true, Message: fmt.Sprintf("everything below it is deleted with a grace period of %ds", *s.Order.GracePeriodSeconds)}, true
	case s.Wave == NotBegun:
		return Status{Message: "its dependents are deleted in order, and the first wave has not started"}, true
	case s.Order.WaveOf(dependent) <= s.Wave:
		return Status{Started: true, Message: "its dependents are deleted in order, and " + s.Order.Describe(s.Wave) + " has started"}, true
	default:
		return Status{Message: "its dependents are deleted in order, and " + s.Order.Describe(s.Wave) + " must be gone first"}, true
	}
}
