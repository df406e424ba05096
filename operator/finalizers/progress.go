package finalizers

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Progress is the progress of one finalizer.
type Progress struct {
	Pending  int
	Released int
	Stuck    []Stuck   // longest first
	Oldest   time.Time // earliest deletionTimestamp of the pending objects; zero: none known

	// WithFinalizer is the number of objects that had the finalizer at the last resync;
	// Counted is true if that was after its resource was deleted.
	WithFinalizer int
	Counted       bool
}

// Stuck is an object that makes no progress.
type Stuck struct {
	Object    graph.Object
	Reason    string
	Message   string
	Attempts  int // of the module, counted as in its requests; 0: none
	Since     time.Time
	NextRetry time.Time // zero: when something changes
	Deadline  time.Time // zero: none
}

// Progress returns the progress of the finalizer of a resource.
func (r *Runner) Progress(uid types.UID) Progress {
	r.mu.RLock()
	s, ok := r.controllers[uid]
	superseded := r.superseded[uid]
	r.mu.RUnlock()
	if !ok {
		return Progress{Counted: superseded}
	}
	return s.progress()
}

// AllProgress returns the progress of all finalizers, by resource.
func (r *Runner) AllProgress() map[string]Progress {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := map[string]Progress{}
	for _, s := range r.controllers {
		all[s.finalizer().String()] = s.progress()
	}
	return all
}

func (s *controller) progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Progress{Pending: len(s.pending), Released: s.released, WithFinalizer: s.withFinalizer, Counted: s.counted}
	now := s.Now()
	for _, t := range s.pending {
		if at := t.deleted; !at.IsZero() && (p.Oldest.IsZero() || at.Before(p.Oldest)) {
			p.Oldest = at
		}
		if inFlight, is := t.inFlight.stuck(t, now); is {
			p.Stuck = append(p.Stuck, inFlight)
		} else if reason, is := stuckReasons[t.reason]; is {
			p.Stuck = append(p.Stuck, Stuck{Object: t.object, Reason: reason, Message: t.message, Attempts: t.attempt, Since: t.since, NextRetry: t.nextRetry, Deadline: t.deadline})
		}
	}
	slices.SortFunc(p.Stuck, func(a, b Stuck) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return p
}
