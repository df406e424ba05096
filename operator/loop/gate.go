package loop

import (
	"sync"
)

// GateState is whether Gleaner may write.
type GateState string

// The states of the gate. Unsure is the zero state: nothing is written.
const (
	Unsure GateState = ""     // whether another collector is alive is not known yet
	Open   GateState = "Open" // none is
	Shut   GateState = "Shut" // one is
)

// gate stands before every write.
type gate struct {
	mu    sync.Mutex // covers what follows
	state GateState
	lease func() error // says if the lease is not to be relied on; nil without election
}

// get returns the state as it counts now: a gate that was opened under a lease
// is not open once that has not been renewed in time.
func (g *gate) get() GateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == Open && g.lease != nil && g.lease() != nil {
		return Unsure
	}
	return g.state
}

// holds reports whether the lease can be relied on, if there is one.
func (g *gate) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lease == nil || g.lease() == nil
}

// under has the gate depend on a lease.
func (g *gate) under(lease func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lease = lease
}

// set changes the state and reports whether it was another.
func (g *gate) set(state GateState) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed := g.state != state
	g.state = state
	return changed
}
