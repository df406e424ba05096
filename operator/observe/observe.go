// Package observe decides whether the controller of an object has observed that the object is being
// deleted.
//
// A controller that works on an object when it is deleted may still adopt dependents: the owner
// reference that it adds would outlive the owner, and the dependent be collected. Controllers that report
// the generation that they have worked on, in status.observedGeneration, do so after such work; a
// deletion increments metadata.generation.
package observe

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// HasObserved reports whether an object that is being deleted has no controller that reports
// status.observedGeneration, or one that has observed the deletion.
func HasObserved(o *unstructured.Unstructured) bool {
	observed, found, err := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if !found || err != nil || observed <= 0 {
		return true
	}
	return observed >= o.GetGeneration()
}

const (
	firstWait = 20 * time.Millisecond
	maxWait   = time.Second
)

// Deletions has objects that are being deleted, and whether their controllers have observed that. The
// zero value is ready to use. Its methods may be called concurrently.
type Deletions struct {
	mu sync.Mutex // covers of
	of map[graph.ID]deletion
}

type deletion struct {
	since   time.Time
	last    time.Duration // the last wait
	settled bool
}

// IsSettled reports whether an object's dependents may be orphaned.
func (d *Deletions) IsSettled(id graph.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of[id].settled
}

// Settle allows the dependents of an object to be orphaned.
func (d *Deletions) Settle(id graph.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set(id, deletion{settled: true})
}

// Wait returns how long to wait before the object is read again, and whether it has been waited for as
// long as the timeout. The time counts from the first call.
func (d *Deletions) Wait(id graph.ID, now time.Time, timeout time.Duration) (after time.Duration, expired bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known, ok := d.of[id]
	if !ok {
		known.since = now
	}
	left := known.since.Add(timeout).Sub(now)
	if left <= 0 {
		return 0, true
	}
	known.last = min(max(2*known.last, firstWait), maxWait)
	d.set(id, known)
	return min(known.last, left), false
}

// set is for callers that hold mu.
func (d *Deletions) set(id graph.ID, to deletion) {
	if d.of == nil {
		d.of = map[graph.ID]deletion{}
	}
	d.of[id] = to
}

// Forget forgets an object that is gone.
func (d *Deletions) Forget(id graph.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, id)
}

// Clear forgets all objects.
func (d *Deletions) Clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.of)
}
