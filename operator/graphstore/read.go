package graphstore

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/selection"
)

// EachHeld calls a function for each object with a hold. It must not call the Store.
func (s *Store) EachHeld(visit func(kind schema.GroupKind, namespace string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graph.Held(func(id graph.ID) bool {
		visit(s.graph.LocationOf(id))
		return true
	})
}

// NeedsHold reports whether some objects of a kind need a hold.
func (s *Store) NeedsHold(gk schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, governed := s.held[gk]
	return governed
}

// Lookup returns the state of an object in the graph.
func (s *Store) Lookup(id graph.ID) (graph.View, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Lookup(id)
}

// Cycle returns an edge of a cycle of owner references that the object is part of.
func (s *Store) Cycle(id graph.ID) (graph.Edge, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Cycle(id)
}

// DependentsByKind returns the number of an object's dependents, by kind.
func (s *Store) DependentsByKind(id graph.ID) []graph.KindCount {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.DependentsByKind(id)
}

// Blockers returns some of an object's dependents of matching kinds, and how many there are.
func (s *Store) Blockers(id graph.ID, matches func(schema.GroupKind) bool) (some []graph.Blocker, count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Blockers(id, matches)
}

// HasDependents reports whether an object has dependents.
func (s *Store) HasDependents(id graph.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.HasDependents(id)
}

// IsSeen reports whether an object is seen.
func (s *Store) IsSeen(id graph.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.IsSeen(id)
}

// AbsentOwner returns an owner reference of an object whose owner is gone or proven absent.
func (s *Store) AbsentOwner(id graph.ID) (metav1.OwnerReference, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.AbsentOwner(id)
}

// Owners calls yield with each owner that an object refers to until it returns false. It must not call methods of
// the Store.
func (s *Store) Owners(id graph.ID, yield func(graph.ID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graph.Owners(id, yield)
}

// Dependents returns the objects with an owner reference to the object.
func (s *Store) Dependents(id graph.ID) []graph.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Dependents(id)
}

// OwnerCount returns the number of the object's owner references in the graph.
func (s *Store) OwnerCount(id graph.ID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.OwnerCount(id)
}

// IsHeldTerminating reports whether an object is being deleted and has a hold.
func (s *Store) IsHeldTerminating(id graph.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.IsHeldTerminating(id)
}

// EquivalentKinds returns pairs of kinds that show the same objects.
func (s *Store) EquivalentKinds() []graph.EquivalentKinds {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.EquivalentKinds()
}

// Has reports whether the graph has a node of this UID (G-78).
func (s *Store) Has(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Has(uid)
}

// Dump returns the nodes of the graph; only those around the given UIDs if there are any.
func (s *Store) Dump(uids ...types.UID) graph.Dump {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Dump(uids...)
}

// Stats returns the size of the graph.
func (s *Store) Stats() graph.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Stats()
}

// Check returns an error if the graph violates its invariants. It is meant for tests.
func (s *Store) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.graph.Check()
}

// IsLeading reports whether this replica leads.
func (s *Store) IsLeading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leading
}

// LeadingSince returns when this replica became the leader; zero if it isn't.
func (s *Store) LeadingSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leading {
		return time.Time{}
	}
	return s.led
}

// IsCanary reports whether an object is this operator's canary.
func (s *Store) IsCanary(id graph.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, own := s.canary[id]
	return own
}

// PendingCount returns how many objects are queued or being reconciled.
func (s *Store) PendingCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending) + len(s.current)
}

// OldestPending returns how long the oldest object has been queued or is being
// reconciled. Objects with many owners don't count: their queue is always worked on last.
func (s *Store) OldestPending() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, age := s.now(), time.Duration(0)
	for _, objects := range []map[graph.ID]time.Time{s.pending, s.current} {
		for id, since := range objects {
			if s.graph.OwnerCount(id) <= graph.ManyOwners {
				age = max(age, now.Sub(since))
			}
		}
	}
	return age
}

// HasSelection reports whether some seen object of a kind has a namespace and a Selection for which
// a function returns true. The function must not call methods of the Store.
func (s *Store) HasSelection(gk schema.GroupKind, matches func(namespace string, s selection.Selection) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	s.graph.Selections(gk, func(namespace string, is selection.Selection) bool {
		found = matches(namespace, is)
		return !found
	})
	return found
}

// Queued is an object that is queued or being reconciled.
type Queued struct {
	Object      graph.Object
	Since       time.Time // when it was queued
	Reconciling bool
}

// OldestQueued returns the objects that have been queued for longest, the oldest first, and at most a number of them. Objects that
// are not in the graph any more don't count.
func (s *Store) OldestQueued(n int) []Queued {
	s.mu.Lock()
	defer s.mu.Unlock()
	type entry struct {
		id          graph.ID
		since       time.Time
		reconciling bool
	}
	var oldest []entry // sorted, of which there are few
	for reconciling, objects := range map[bool]map[graph.ID]time.Time{false: s.pending, true: s.current} {
		for id, since := range objects {
			if len(oldest) == n && !since.Before(oldest[n-1].since) {
				continue
			}
			at, _ := slices.BinarySearchFunc(oldest, since, func(e entry, t time.Time) int { return e.since.Compare(t) })
			oldest = slices.Insert(oldest, at, entry{id, since, reconciling})
			oldest = oldest[:min(len(oldest), n)]
		}
	}
	var queued []Queued
	for _, e := range oldest {
		if view, ok := s.graph.Lookup(e.id); ok {
			queued = append(queued, Queued{view.Object, e.since, e.reconciling})
		}
	}
	return queued
}
