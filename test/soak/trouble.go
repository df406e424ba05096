package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/test/proxy"
)

// trouble is what goes wrong for a while.
type trouble struct {
	name string
	begin,
	end func(context.Context) error
	lasts time.Duration
}

// troubles come in turn.
func (s *stage) troubles() []trouble {
	list := []trouble{
		{name: "watches are cut", begin: once(func() { s.proxy.CutWatches("") })},
		s.faulty("writes are lost", 4, proxy.Dropped, "delete", "patch", "update", "create"),
		s.faulty("answers are lost", 4, proxy.Unanswered, "delete", "patch", "update", "create"),
		{name: "connections are cut", begin: once(s.proxy.CutConnections)},
		s.faulty("the API server is busy", 3, proxy.Busy(time.Second)),
		s.faulty("there is no healthy upstream", 1, proxy.Unavailable),
		s.faulty("reads fail", 2, proxy.Broken, "get", "list"),
		s.faulty("it is slow", 2, proxy.Slow(500*time.Millisecond)),
		s.expiry(),
		{name: "the API server is killed", lasts: time.Second, begin: s.kill, end: s.cluster.StartAPIServer},
	}
	if s.length >= 5*time.Minute {
		list = append(list, trouble{name: "the API server is away, and the lease is lost", lasts: 20 * time.Second, begin: s.kill, end: s.cluster.StartAPIServer})
	}
	return list
}

func once(do func()) func(context.Context) error {
	return func(context.Context) error {
		do()
		return nil
	}
}

func (s *stage) kill(context.Context) error { return s.cluster.KillAPIServer() }

// faulty has something happen to one in so many of the operator's calls of some verbs,
// or of all.
func (s *stage) faulty(name string, oneIn int, happen proxy.Happening, verbs ...string) trouble {
	var fault *proxy.Fault
	return trouble{name: name, lasts: 3 * time.Second,
		begin: once(func() { fault = s.proxy.Fail(-1, proxy.Sometimes(oneIn, proxy.OfResources(verbs...)), happen) }),
		end:   once(func() { fault.Lift() }),
	}
}

// expiry has all watches begin anew with lists, since what they want to go on from is
// too old.
func (s *stage) expiry() trouble {
	var fault *proxy.Fault
	return trouble{name: "watches are too old", lasts: 2 * time.Second,
		begin: once(func() {
			fault = s.proxy.Fail(-1, proxy.OfResources("watch"), proxy.Expired)
			s.proxy.CutWatches("")
		}),
		end: once(func() { fault.Lift() }),
	}
}

// trouble has things go wrong, one after the other, until the time is over.
func (s *stage) trouble(ctx, ending context.Context) error {
	between := max(s.length/120, time.Second)
	for n := 0; pause(ctx, ending, between); n++ {
		list := s.troubles()
		t := list[n%len(list)]
		if err := t.begin(ctx); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		s.faults.Add(1)
		pause(ctx, ctx, t.lasts)
		if t.end == nil {
			continue
		}
		if err := t.end(ctx); err != nil {
			return fmt.Errorf("%s: until it ends: %w", t.name, err)
		}
	}
	return nil
}

// drained sees that nothing is left to do for the operator, and nothing of ours on any
// object.
func (s *stage) drained(ctx context.Context) error {
	err := eventually(ctx, func() error {
		if err := s.operator.ended(); err != nil {
			return err
		}
		last, err := s.operator.figures(ctx)
		if err != nil {
			return err
		}
		if oldest := last.values["oldest work, s"]; oldest > 1 {
			return fmt.Errorf("some work has waited for %.0f s", oldest)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.wrong("the operator does not come to rest: %v", err)
		err = nil
	}
	return errors.Join(err, ctx.Err())
}
