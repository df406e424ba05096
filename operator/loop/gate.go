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
	mu    sync.Mutex // covers state
	state GateState
}

func (g *gate) get() GateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// set changes the state and reports whether it was another.
func (g *gate) set(state GateState) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed := g.state != state
	g.state = state
	return changed
}
