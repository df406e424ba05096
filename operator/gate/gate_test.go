package gate

import (
	"errors"
	"sync"
	"testing"
)

func TestGate_IsNotOpenUnlessItWasOpened(t *testing.T) {
	var g Gate
	if got := g.State(); got != (State{}) || g.IsOpen() {
		t.Errorf("a new gate is %+v", got)
	}
	for _, step := range []struct {
		to      Probe
		changed bool
	}{
		{Unknown, false}, {Open, true}, {Open, false}, {Shut, true}, {Shut, false}, {Open, true}, {Unknown, true},
	} {
		if changed := g.SetProbe(step.to); changed != step.changed || g.State().Probe != step.to || g.IsOpen() != (step.to == Open) {
			t.Errorf("set to %q: changed is %t, and it is %+v", step.to, changed, g.State())
		}
	}
}

func TestGate_OneOfManyOpensIt(t *testing.T) {
	var (
		g      Gate
		all    sync.WaitGroup
		opened = make(chan struct{}, 32)
	)
	for range cap(opened) {
		all.Go(func() {
			if g.SetProbe(Open) {
				opened <- struct{}{}
			}
		})
	}
	all.Wait()
	if len(opened) != 1 {
		t.Errorf("it was opened %d times", len(opened))
	}
}

func TestGate_IsNotOpenOnceItsLeaseIsNotRenewed(t *testing.T) {
	var g Gate
	var expired error
	g.SetLease(func() error { return expired })
	g.Lead()
	g.SetProbe(Open)
	if !g.IsOpen() || !g.LeaseValid() || g.State().Lapsed {
		t.Errorf("it is %+v under a valid lease", g.State())
	}
	expired = errors.New("not renewed in time")
	if s := g.State(); g.IsOpen() || g.LeaseValid() || s.Probe != Unknown || !s.Leading || !s.Lapsed {
		t.Errorf("it is %+v under a lease that was not renewed", s)
	}
	g.Follow()
	if s := g.State(); s.Lapsed {
		t.Errorf("it is %+v after the lease was lost", s)
	}
}

func TestGate_EachTermHasItsNumber(t *testing.T) {
	var g Gate
	changed := g.Changed()
	g.Lead()
	select {
	case <-changed:
	default:
		t.Error("leading is not published")
	}
	first := g.State()
	g.SetProbe(Open)
	g.Follow()
	if s := g.State(); s.Leading || s.Probe != Unknown {
		t.Errorf("a follower is %+v", s)
	}
	g.Lead()
	if s := g.State(); !first.Leading || !s.Leading || s.Term != first.Term+1 {
		t.Errorf("%+v after %+v", s, first)
	}
}
