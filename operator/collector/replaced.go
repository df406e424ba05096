package collector

import (
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// replacedTimeout is how long a state that a write has replaced is not decided about. After
// that the watch is behind, and a write with that state as its precondition finds out.
const replacedTimeout = time.Second

// maxReplaced bounds the number of states that are remembered.
const maxReplaced = 10_000

// replaced has, of objects with a hold, the resourceVersion that a write has replaced and that the
// graph may still have. The event that causes the next step may come before it, such as that of
// a state that was saved, or of a dependent. A decision then would repeat the step, and its
// write fail. The zero value is ready to use. Its methods may be called concurrently.
type replaced struct {
	mu sync.Mutex // covers of
	of map[graph.ID]replacedVersion
}

type replacedVersion struct {
	resourceVersion string
	at              time.Time
}

// add remembers that a write has replaced a state of an object. If there are too many, others
// are forgotten: that costs a request, and decides nothing.
func (r *replaced) add(id graph.ID, resourceVersion string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || len(r.of) >= maxReplaced {
		r.of = map[graph.ID]replacedVersion{}
	}
	r.of[id] = replacedVersion{resourceVersion, now}
}

// has reports whether a state of an object was replaced lately. Otherwise nothing is remembered
// of it any more.
func (r *replaced) has(id graph.ID, resourceVersion string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.of[id]
	if !ok {
		return false
	}
	if known.resourceVersion == resourceVersion && now.Sub(known.at) < replacedTimeout {
		return true
	}
	delete(r.of, id)
	return false
}

func (r *replaced) forget(id graph.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, id)
}
