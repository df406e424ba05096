package gather

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Requests remembers the propagation policies that clients requested for objects with a
// hold, in companion mode. The built-in garbage collector carries a request out and removes
// its finalizer, possibly before Gleaner has decided about the object. Then only the watch
// events in between have shown it. That it was seen does not prove that it was carried out:
// see carriedOut. A request is forgotten if the operator restarts, and
// the policies decide as if the client had specified nothing.
//
// The zero value is ready to use. Its methods may be called concurrently.
type Requests struct {
	mu sync.RWMutex // protects of
	of map[graph.ID]request
}

// A request is the propagation policy that a client requested for an object of a kind.
type request struct {
	propagation metav1.DeletionPropagation
	kind        schema.GroupKind
}

// Of returns the propagation policy that was requested for an object; "" if none is known.
func (r *Requests) Of(id graph.ID) metav1.DeletionPropagation {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.of[id].propagation
}

// Apply handles watch events, and returns the objects for which a request was added or
// changed.
func (r *Requests) Apply(events ...graph.Event) (changed []graph.ID) {
	for _, e := range events {
		switch e := e.(type) {
		case graph.Seen:
			if r.seen(e.Object) {
				changed = append(changed, graph.IDOf(e.Object.UID))
			}
		case graph.Deleted:
			r.forget(graph.IDOf(e.Object.UID))
		case graph.Relisted:
			r.forgetKind(e.Kind, e.Listed)
		case graph.TypeGone:
			r.forgetKind(e.Kind, nil)
		}
	}
	return changed
}

func (r *Requests) seen(o graph.Object) (changed bool) {
	id, requested := graph.IDOf(o.UID), request{kind: o.Kind.GroupKind()}
	switch {
	case !o.Held || !o.Terminating:
		r.forget(id)
		return false
	case o.Orphan:
		requested.propagation = metav1.DeletePropagationOrphan
	case o.Foreground:
		requested.propagation = metav1.DeletePropagationForeground
	default:
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[id] == requested {
		return false
	}
	if r.of == nil {
		r.of = map[graph.ID]request{}
	}
	r.of[id] = requested
	return true
}

// forget forgets an object. For most objects there is nothing to forget.
func (r *Requests) forget(id graph.ID) {
	if r.Of(id) == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, id)
}

// forgetKind forgets the objects of a kind that are not listed.
func (r *Requests) forgetKind(kind schema.GroupKind, listed map[graph.ID]struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, requested := range r.of {
		if _, found := listed[id]; !found && requested.kind == kind {
			delete(r.of, id)
		}
	}
}
