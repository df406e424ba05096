package finalize

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Progress is how a finalizer gets on.
type Progress struct {
	Pending  int
	Released int
	Stuck    []Stuck   // the longest first
	Oldest   time.Time // when that of the pending was deleted that has waited longest; zero: none is known

	// Carriers are the objects that had the finalizer when somebody looked last;
	// Counted tells whether that was since its resource was deleted.
	Carriers int
	Counted  bool
}

// Stuck is an object that gets no further.
type Stuck struct {
	Object   graph.Object
	Reason   string
	Message  string
	Since    time.Time
	Retry    time.Time // zero: when something changes
	Deadline time.Time // zero: none
}

// Progress says how the finalizer of a resource gets on.
func (r *Runner) Progress(uid types.UID) Progress {
	r.mu.RLock()
	s, ok := r.servers[uid]
	left := r.left[uid]
	r.mu.RUnlock()
	if !ok {
		return Progress{Counted: left}
	}
	return s.progress()
}

// All says how each finalizer gets on, by what it is called.
func (r *Runner) All() map[string]Progress {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := map[string]Progress{}
	for _, s := range r.servers {
		all[s.finalizer().String()] = s.progress()
	}
	return all
}

func (s *server) progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := Progress{Pending: len(s.tracks), Released: s.released, Carriers: s.carriers, Counted: s.counted}
	now := s.Now()
	for _, t := range s.tracks {
		if at := t.deleted; !at.IsZero() && (p.Oldest.IsZero() || at.Before(p.Oldest)) {
			p.Oldest = at
		}
		if flying, is := t.flight.stuckFor(t, now); is {
			p.Stuck = append(p.Stuck, flying)
		} else if word, is := stuck[t.reason]; is {
			p.Stuck = append(p.Stuck, Stuck{Object: t.object, Reason: word, Message: t.message, Since: t.since, Retry: t.due, Deadline: t.deadline})
		}
	}
	slices.SortFunc(p.Stuck, func(a, b Stuck) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	return p
}
