package loop

import (
	"sync"
	"testing"
)

// Unless it was opened, a gate is not open.
func TestAGateTellsOfAChange(t *testing.T) {
	var g gate
	if got := g.get(); got != Unsure {
		t.Errorf("a new gate is %q", got)
	}
	for _, step := range []struct {
		to      GateState
		changed bool
	}{
		{Unsure, false}, {Open, true}, {Open, false}, {Shut, true}, {Shut, false}, {Open, true}, {Unsure, true},
	} {
		if changed := g.set(step.to); changed != step.changed || g.get() != step.to {
			t.Errorf("set to %q: changed is %t, and it is %q", step.to, changed, g.get())
		}
	}
}

// Of many who open it at once, one is told that it did.
func TestAGateIsOpenedOnce(t *testing.T) {
	var (
		g      gate
		all    sync.WaitGroup
		opened = make(chan struct{}, 32)
	)
	for range cap(opened) {
		all.Go(func() {
			if g.set(Open) {
				opened <- struct{}{}
			}
		})
	}
	all.Wait()
	if len(opened) != 1 {
		t.Errorf("it was opened %d times", len(opened))
	}
}
