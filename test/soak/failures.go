package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gleaner-dev/gleaner/test/proxy"
)

// failure is a temporary failure.
type failure struct {
	name string
	begin,
	end func(context.Context) error
	duration time.Duration
}

// failures returns the failures, which occur in turn.
func (s *testbed) failures() []failure {
	list := []failure{
		{name: "watches are cut", begin: ignoreContext(func() { s.proxy.CutWatches("") })},
		s.failingCalls("writes are lost", 4, proxy.DroppedConnection, "delete", "patch", "update", "create"),
		s.failingCalls("answers are lost", 4, proxy.LostResponse, "delete", "patch", "update", "create"),
		{name: "connections are cut", begin: ignoreContext(s.proxy.CutConnections)},
		s.failingCalls("the API server is busy", 3, proxy.TooManyRequests(time.Second)),
		s.failingCalls("no healthy upstream", 1, proxy.Unavailable),
		s.failingCalls("reads fail", 2, proxy.InternalError, "get", "list"),
		s.failingCalls("the API server is slow", 2, proxy.Slow(500*time.Millisecond)),
		s.expiredWatches(),
		{name: "the API server is killed", duration: time.Second, begin: s.kill, end: s.cluster.StartAPIServer},
	}
	if s.length >= 5*time.Minute {
		list = append(list, failure{name: "the API server is away, and the lease is lost", duration: 20 * time.Second, begin: s.kill, end: s.cluster.StartAPIServer})
	}
	return list
}

func ignoreContext(do func()) func(context.Context) error {
	return func(context.Context) error {
		do()
		return nil
	}
}

func (s *testbed) kill(context.Context) error { return s.cluster.KillAPIServer() }

// failingCalls returns a failure of one in oneIn of the operator's calls with some verbs,
// or with any.
func (s *testbed) failingCalls(name string, oneIn int, happen proxy.FaultHandler, verbs ...string) failure {
	var fault *proxy.Fault
	return failure{name: name, duration: 3 * time.Second,
		begin: ignoreContext(func() { fault = s.proxy.Fail(-1, proxy.OneIn(oneIn, proxy.ForResources(verbs...)), happen) }),
		end:   ignoreContext(func() { fault.Lift() }),
	}
}

// expiredWatches returns a failure after which all watches have to start with a list, since their
// resourceVersions have expired.
func (s *testbed) expiredWatches() failure {
	var fault *proxy.Fault
	return failure{name: "watches are too old", duration: 2 * time.Second,
		begin: ignoreContext(func() {
			fault = s.proxy.Fail(-1, proxy.ForResources("watch"), proxy.Expired)
			s.proxy.CutWatches("")
		}),
		end: ignoreContext(func() { fault.Lift() }),
	}
}

// causeFailures causes failures, one after the other, until the time is over.
func (s *testbed) causeFailures(ctx, ending context.Context) error {
	between := max(s.length/120, time.Second)
	for n := 0; pause(ctx, ending, between); n++ {
		list := s.failures()
		t := list[n%len(list)]
		if err := t.begin(ctx); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		s.faults.Add(1)
		pause(ctx, ctx, t.duration)
		if t.end == nil {
			continue
		}
		if err := t.end(ctx); err != nil {
			return fmt.Errorf("%s: until it ends: %w", t.name, err)
		}
	}
	return nil
}

// checkDrained checks that the operator's queue is empty, and that no object has anything left
// of Gleaner.
func (s *testbed) checkDrained(ctx context.Context) error {
	err := eventually(ctx, func() error {
		if err := s.operator.ended(); err != nil {
			return err
		}
		last, err := s.operator.readMetrics(ctx)
		if err != nil {
			return err
		}
		if oldest := last.values["oldest work, s"]; oldest > 1 {
			return fmt.Errorf("oldest item has been queued for %.0f s", oldest)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		s.problemf("operator does not become idle: %v", err)
		err = nil
	}
	return errors.Join(err, ctx.Err())
}
