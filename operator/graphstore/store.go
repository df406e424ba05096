// Package graphstore keeps the owner graph for concurrent use, with the set of objects that
// are queued for reconciliation. The graph and that set have one lock, so that no event is
// applied without its objects being queued (G-02).
//
// Everything that is learned about objects is applied here, whether a watch, a read or the
// response to a write has shown it.
package graphstore

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Add adds an object to the work queue. The namespace is the one whose turn the object
// takes, and owners the number of owner references in the graph. It is called with the
// Store's lock held, and must not call its methods.
type Add func(id graph.ID, namespace string, owners int)

// Store is the owner graph, with the objects that are to be reconciled. Create it with New
// or NewLeading. Its methods may be called concurrently.
type Store struct {
	now func() time.Time

	mu      sync.Mutex // covers the fields below
	graph   *graph.Graph
	add     Add                           // nil until there is a work queue
	leading bool                          // followers only keep the graph
	led     time.Time                     // when this replica became the leader
	pending map[graph.ID]time.Time        // when an object was queued
	current map[graph.ID]time.Time        // the same of objects that are being reconciled
	failed  map[graph.ID]struct{}         // objects whose last write failed: any change queues them
	held    map[schema.GroupKind]struct{} // kinds of which some objects need a hold
	canary  map[graph.ID]struct{}         // this operator's canary, which it does not collect
	dirty   []graph.ID                    // scratch
}

// New returns an empty Store of a replica that doesn't lead.
func New(now func() time.Time) *Store {
	return &Store{
		now:     now,
		graph:   graph.New(),
		pending: map[graph.ID]time.Time{},
		current: map[graph.ID]time.Time{},
		failed:  map[graph.ID]struct{}{},
		canary:  map[graph.ID]struct{}{},
	}
}

// NewLeading returns a Store of a leader with a graph. Only what is applied from now on
// queues objects.
func NewLeading(g *graph.Graph, add Add, now func() time.Time) *Store {
	s := New(now)
	s.graph, s.add, s.leading, s.led = g, add, true, now()
	return s
}

// Apply applies events to the graph and queues the objects that they concern.
func (s *Store) Apply(events ...graph.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = s.dirty[:0]
	for _, e := range events {
		before := len(s.dirty)
		s.dirty = s.graph.Apply(e, s.dirty)
		if _, absent := e.(graph.Absent); absent {
			s.dirty = append(s.dirty[:before], slices.DeleteFunc(s.dirty[before:], s.isCurrent)...)
		}
		if len(s.failed) != 0 {
			s.markFailed(e)
		}
		s.markHolds(e)
	}
	for _, id := range s.dirty {
		s.queue(id)
	}
}

// ApplyWritten applies the response to a write to an object that is being reconciled. It does not
// queue that object: the reconciliation continues with it.
func (s *Store) ApplyWritten(o graph.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = s.graph.Apply(graph.Read{Object: o}, s.dirty[:0])
	for _, id := range s.dirty {
		if id != graph.IDOf(o.UID) {
			s.queue(id)
		}
	}
}

// isCurrent reports whether an object is being reconciled. The absence of an owner need
// not queue it: the reconciliation finds that out, or requeues the object.
func (s *Store) isCurrent(id graph.ID) bool {
	_, ok := s.current[id]
	return ok
}

// markFailed marks an object whose last write failed as soon as it changes, regardless
// of its backoff (defect 3.28).
func (s *Store) markFailed(e graph.Event) {
	seen, ok := e.(graph.Seen)
	if !ok {
		return
	}
	id := graph.IDOf(seen.Object.UID)
	if _, ok := s.failed[id]; ok {
		delete(s.failed, id)
		s.dirty = append(s.dirty, id)
	}
}

// markHolds marks an object whose hold may have to be added or removed.
func (s *Store) markHolds(e graph.Event) {
	seen, ok := e.(graph.Seen)
	if !ok || seen.Object.Terminating {
		return
	}
	if _, governed := s.held[seen.Object.Kind.GroupKind()]; governed != seen.Object.Held {
		s.dirty = append(s.dirty, graph.IDOf(seen.Object.UID))
	}
}

// SetHeldKinds sets the kinds of which some objects need a hold, and queues the objects
// for which that may have changed.
func (s *Store) SetHeldKinds(kinds map[schema.GroupKind]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = kinds
	s.queueHolds(func(governed, held bool) bool { return governed || held })
}

// queueHolds queues objects of governed kinds and objects with a hold, by these two
// properties.
func (s *Store) queueHolds(matches func(governed, held bool) bool) {
	for gk := range s.held {
		s.graph.OfKind(gk, func(id graph.ID, held bool) bool {
			if matches(true, held) {
				s.queue(id)
			}
			return true
		})
	}
	s.graph.Held(func(id graph.ID) bool {
		kind, _ := s.graph.LocationOf(id)
		if _, governed := s.held[kind]; !governed && matches(false, true) {
			s.queue(id)
		}
		return true
	})
}

// queue queues an object that was seen. Others need no work.
func (s *Store) queue(id graph.ID) {
	if _, own := s.canary[id]; own || !s.leading || s.add == nil || !s.graph.IsSeen(id) {
		return
	}
	if _, queued := s.pending[id]; !queued {
		s.pending[id] = s.now()
	}
	s.add(id, s.graph.NamespaceOf(id), s.graph.OwnerCount(id))
}

// Feed sets the work queue, and queues every object that needs work.
func (s *Store) Feed(add Add) {
	s.mu.Lock()
	s.add = add
	s.mu.Unlock()
	s.Sweep()
}

// Lead queues every object that needs work, and from then on objects as they need it.
func (s *Store) Lead() {
	s.mu.Lock()
	s.leading, s.led = true, s.now()
	s.mu.Unlock()
	s.Sweep()
}

// Follow stops queueing objects: a follower only keeps the graph.
func (s *Store) Follow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading = false
	clear(s.pending)
	clear(s.failed)
}

// Sweep queues every object that may need work, in case an event was lost.
func (s *Store) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graph.NeedingWork(func(id graph.ID) bool {
		s.queue(id)
		return true
	})
	s.queueHolds(func(governed, held bool) bool { return governed != held })
}

// Requeue queues objects about which something was learned elsewhere.
func (s *Store) Requeue(ids []graph.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.queue(id)
	}
}

// Begin marks an object as being reconciled. What is learned about it from now on queues
// it again.
func (s *Store) Begin(id graph.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since, ok := s.pending[id]; ok {
		s.current[id] = since
		delete(s.pending, id)
	}
}

// Finish marks an object as reconciled. After a failure, any change of the object queues
// it.
func (s *Store) Finish(id graph.ID, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.current, id)
	delete(s.failed, id)
	if failed {
		s.failed[id] = struct{}{}
	}
}

// SetCanary excludes a canary of this operator from collection. It replaces the previous
// one.
func (s *Store) SetCanary(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.canary)
	s.canary[graph.IDOf(uid)] = struct{}{}
}
