// Package gate says what this replica may write now: whether it leads, whether its lease
// can be relied on, and what the probe for another garbage collector has found.
//
// It neither probes nor elects a leader.
package gate

import (
	"sync"

	"github.com/gleaner-dev/gleaner/operator/latest"
)

// Probe is what was found out about another garbage collector.
type Probe string

// The results of probes. The zero Probe allows nothing.
const (
	Unknown Probe = ""     // whether another collector is running is not known yet
	Open    Probe = "Open" // no other one is running
	Shut    Probe = "Shut" // another one is running
)

// State is the state of a Gate. The zero State allows nothing.
type State struct {
	Leading bool
	Term    uint64 // counts the times that this replica came to lead
	Probe   Probe

	// Lapsed is set if the gate would be open if the lease had been renewed in time. Either
	// the lease is renewed after all, which is not published, or it is lost.
	Lapsed bool
}

// Gate publishes a State. The zero Gate is ready to use. Its methods may be called
// concurrently.
type Gate struct {
	state latest.Value[State]

	mu    sync.Mutex   // covers lease
	lease func() error // says why the lease can't be relied on; nil without leader election
}

// State returns the state, with Probe as it counts now: a gate that was opened under a
// lease is not open once that was not renewed in time.
func (g *Gate) State() State {
	s, _ := g.state.Load()
	if s.Probe == Open && !g.LeaseValid() {
		s.Probe, s.Lapsed = Unknown, true
	}
	return s
}

// IsOpen reports whether the collector may write.
func (g *Gate) IsOpen() bool { return g.State().Probe == Open }

// IsLeading reports whether this replica leads, and can rely on its lease.
func (g *Gate) IsLeading() bool { return g.State().Leading && g.LeaseValid() }

// LeaseValid reports whether the lease can be relied on, if there is one.
func (g *Gate) LeaseValid() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lease == nil || g.lease() == nil
}

// Changed returns a channel that is closed when a State is published after this call.
// That a lease has lapsed, and that it was renewed after all, is not published: see Lapsed.
func (g *Gate) Changed() <-chan struct{} { return g.state.Changed() }

// SetLease has the gate depend on a lease.
func (g *Gate) SetLease(check func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease = check
}

// SetProbe publishes the result of a probe, and reports whether it is another than before.
func (g *Gate) SetProbe(p Probe) (changed bool) {
	g.state.Update(func(s State) State {
		changed = s.Probe != p
		s.Probe = p
		return s
	})
	return changed
}

// Lead publishes that this replica leads.
func (g *Gate) Lead() {
	g.state.Update(func(s State) State {
		s.Leading = true
		s.Term++
		return s
	})
}

// Follow publishes that it does not lead any more.
func (g *Gate) Follow() {
	g.state.Update(func(s State) State {
		s.Leading, s.Probe = false, Unknown
		return s
	})
}
