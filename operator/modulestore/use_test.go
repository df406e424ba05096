package modulestore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// used takes the state of one use as the only one of a snapshot.
func used(s *Store, u Use) UseState {
	uses := s.NewUses()
	defer uses.Commit()
	return uses.Get(u)
}

// loaded is a module that is Ready.
func loaded(t *testing.T, s *Store, r Resource) Module {
	t.Helper()
	s.SetModules([]Resource{r})
	synctest.Wait()
	return is(t, s, r, Ready).Module
}

func TestUse_APolicyThatNeverStartsDelaysNoClusterPolicy(t *testing.T) {
	f := newFake()
	f.start = func(ctx context.Context, o StartOptions) error {
		if o.Policy == "slow" {
			return never(ctx)
		}
		return nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		m := loaded(t, s, inline("", "m", "m"))
		slow, cluster := useOf("slow", m, "{}"), useOf("cluster", m, "{}")
		cluster.Settings.Namespace = ""
		get := func() (UseState, UseState) {
			uses := s.NewUses()
			defer uses.Commit()
			return uses.Get(slow), uses.Get(cluster)
		}
		get()
		synctest.Wait()
		if a, b := get(); a.Phase != Loading || b.Phase != Ready {
			t.Errorf("got %+v and %+v", a, b)
		}
		time.Sleep(startTimeout + time.Second)
		if a, _ := get(); a.Phase != Failed || a.NextRetry.IsZero() {
			t.Errorf("what takes too long is not given up: %+v", a)
		}
	})
}

func TestUse_AnEvaluatorStaysTheSame(t *testing.T) {
	f := newFake()
	simulate(t, f, func(t *testing.T, s *Store) {
		m := loaded(t, s, inline("", "m", "m"))
		first := used(s, useOf("p", m, "{}"))
		if first.Phase != Loading {
			t.Errorf("got %+v", first)
		}
		synctest.Wait()
		second := used(s, useOf("p", m, "{}"))
		third := used(s, useOf("p", m, `{"other": 1}`)) // nobody validates them
		if second.Phase != Ready || third.Evaluator != second.Evaluator || f.counted(f.started, "p") != 1 {
			t.Errorf("got %+v and %+v", second, third)
		}
	})
}

func TestUse_SettingsAreValidatedOnce(t *testing.T) {
	f := newFake()
	f.hooks = append(f.hooks, hostabi.HookValidate)
	f.answer = func(_ context.Context, r hostabi.Request) (hostabi.Verdict, error) {
		if string(r.Policy.Settings) == "{}" {
			return hostabi.Verdict{Decision: hostabi.DecisionValid}, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionInvalid, Reason: "no such setting"}, nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		m := loaded(t, s, inline("", "m", "m"))
		for range 10 {
			used(s, useOf("p", m, "{}"))
			synctest.Wait()
		}
		good := used(s, useOf("p", m, "{}"))
		if n := f.counted(f.asked, "p {}"); n != 1 || good.Phase != Ready {
			t.Errorf("asked %d times, got %+v", n, good)
		}
		if now := used(s, useOf("p", m, "[]")); now.Phase != Loading {
			t.Errorf("other settings count before they are validated: %+v", now)
		}
		synctest.Wait()
		refused := (*SettingsError)(nil)
		if bad := used(s, useOf("p", m, "[]")); bad.Phase != Failed || !errors.As(bad.Err, &refused) || refused.Reason != "no such setting" {
			t.Errorf("got %+v", bad)
		}
		used(s, useOf("p", m, "{}"))
		synctest.Wait()
		if again := used(s, useOf("p", m, "{}")); again.Evaluator != good.Evaluator || f.counted(f.started, "p") != 1 {
			t.Errorf("got %+v", again)
		}
	})
}

func TestUse_AModuleThatDoesNotStartIsStartedOnce(t *testing.T) {
	for kind, want := range map[policies.FaultKind]bool{policies.FaultExhausted: true, policies.FaultTimedOut: false, "": false} {
		f := newFake()
		f.start = func(context.Context, StartOptions) error {
			if kind == "" {
				return errors.New("no worker")
			}
			return &policies.Fault{Kind: kind, Message: "it loops"}
		}
		simulate(t, f, func(t *testing.T, s *Store) {
			m := loaded(t, s, inline("", "m", "m"))
			for range 60 {
				used(s, useOf("p", m, "{}"))
				time.Sleep(time.Minute)
			}
			n := f.counted(f.started, "p")
			if once := n == 1; once != want || n > 15 {
				t.Errorf("%q: it was started %d times in an hour", kind, n)
			}
		})
	}
}

func TestUse_WhatNoSnapshotHasIsFreedAfterTheLastCalls(t *testing.T) {
	f, release := newFake(), (chan struct{})(nil)
	f.answer = func(context.Context, hostabi.Request) (hostabi.Verdict, error) {
		<-release
		return hostabi.Verdict{Decision: hostabi.DecisionOrphan}, nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		release = make(chan struct{})
		m := loaded(t, s, inline("", "m", "m"))
		used(s, useOf("p", m, "{}"))
		synctest.Wait()
		e := used(s, useOf("p", m, "{}")).Evaluator
		s.NewUses().Commit()
		s.SetModules(nil)
		answered := make(chan error, 1)
		go func() {
			_, err := e.Ask(t.Context(), hostabi.Request{Hook: hostabi.HookCollect})
			answered <- err
		}()
		time.Sleep(lastCalls + time.Second)
		synctest.Wait()
		if f.counted(f.closed, "p")+f.counted(f.closed, "m") != 0 {
			t.Error("it is freed while it is called")
		}
		if _, err := e.Ask(t.Context(), hostabi.Request{}); !errors.Is(err, errRetired) {
			t.Errorf("it takes calls: %v", err)
		}
		close(release)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if f.counted(f.closed, "p") != 1 || f.counted(f.closed, "m") != 1 {
			t.Errorf("it is not freed once: %v", f.closed)
		}
	})
}

// Whoever changes a module again and again must not fill the memory.
func TestUse_OneThatWasReplacedIsKeptForEachPolicy(t *testing.T) {
	f := newFake()
	simulate(t, f, func(t *testing.T, s *Store) {
		for i := range 10 {
			m := loaded(t, s, inline("shop", "m", fmt.Sprint(i)))
			used(s, useOf("p", m, "{}"))
			time.Sleep(time.Second)
			used(s, useOf("p", m, "{}"))
		}
		synctest.Wait()
		if len(s.uses) != 2 || f.counted(f.closed, "p") == 0 {
			t.Errorf("%d instances are kept", len(s.uses))
		}
	})
}

func TestUse_OneThatIsTakenUpAgainIsStarted(t *testing.T) {
	f := newFake()
	f.start = func(ctx context.Context, _ StartOptions) error {
		time.Sleep(time.Second)
		return ctx.Err()
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		m := loaded(t, s, inline("", "m", "m"))
		used(s, useOf("p", m, "{}"))
		time.Sleep(time.Millisecond)
		s.NewUses().Commit() // it is being started
		used(s, useOf("p", m, "{}"))
		time.Sleep(3 * time.Second)
		if state := used(s, useOf("p", m, "{}")); state.Phase != Ready {
			t.Errorf("got %+v", state)
		}
	})
}
