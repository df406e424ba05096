package archiver

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// Stats are what was archived for one policy since the start.
type Stats struct {
	Archived int64 // objects
	Bytes    int64 // as stored
	Missed   int64 // objects whose deletion was let through without an entry

	FailedAt time.Time // of the last failure; zero: there was none
	Failure  string    // the object, and why
}

// Stats returns what was archived for a policy, by the UID of its resource.
func (a *Archiver) Stats(policy types.UID) Stats { return a.tally.of(policy) }

// Forget forgets the policies that are not in a set of UIDs.
func (a *Archiver) Forget(existing map[types.UID]bool) {
	a.tally.mu.Lock()
	defer a.tally.mu.Unlock()
	for uid := range a.tally.policies {
		if !existing[uid] {
			delete(a.tally.policies, uid)
		}
	}
}

// Totals returns what was archived since the start, whatever policies selected it.
func (a *Archiver) Totals() Stats {
	a.tally.mu.Lock()
	defer a.tally.mu.Unlock()
	return a.tally.total
}

// tally counts what was archived.
type tally struct {
	mu       sync.Mutex // covers what follows
	policies map[types.UID]*Stats
	total    Stats
}

func newTally() tally { return tally{policies: map[types.UID]*Stats{}} }

func (t *tally) of(policy types.UID) Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.policies[policy]; ok {
		return *s
	}
	return Stats{}
}

// entry returns the Stats of a policy; t.mu is held.
func (t *tally) entry(p *policyset.Archive) *Stats {
	uid := p.Object.GetUID()
	s, ok := t.policies[uid]
	if !ok {
		s = &Stats{}
		t.policies[uid] = s
	}
	return s
}

func (t *tally) stored(by []*policyset.Archive, size int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.Archived++
	t.total.Bytes += size
	for _, p := range by {
		s := t.entry(p)
		s.Archived++
		s.Bytes += size
	}
}

func (t *tally) failed(at time.Time, by []*policyset.Archive, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	missed := !keeps(by)
	if missed {
		t.total.Missed++
	}
	for _, p := range by {
		s := t.entry(p)
		s.FailedAt, s.Failure = at, message
		if missed {
			s.Missed++
		}
	}
}
