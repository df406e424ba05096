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

// getUse returns the state of the only use of a snapshot.
func getUse(s *Store, u Use) UseState {
	uses := s.NewUses()
	defer uses.Commit()
	return uses.Get(u)
}

// loadModule loads a module and returns it when it is Ready.
func loadModule(t *testing.T, s *Store, r Resource) Module {
	t.Helper()
	s.SetModules([]Resource{r})
	synctest.Wait()
	return wantPhase(t, s, r, Ready).Module
}

func TestUse_AHangingStartDelaysNoClusterPolicy(t *testing.T) {
	f := newFake()
	f.start = func(ctx context.Context, o StartOptions) error {
		if o.Policy == "slow" {
			return blockUntilDone(ctx)
		}
		return nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		m := loadModule(t, s, inlineModule("", "m", "m"))
		slow, cluster := newUse("slow", m, "{}"), newUse("cluster", m, "{}")
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
			t.Errorf("the start did not time out: %+v", a)
		}
	})
}

func TestUse_EvaluatorStaysTheSame(t *testing.T) {
	f := newFake()
	runStore(t, f, func(t *testing.T, s *Store) {
		m := loadModule(t, s, inlineModule("", "m", "m"))
		first := getUse(s, newUse("p", m, "{}"))
		if first.Phase != Loading {
			t.Errorf("got %+v", first)
		}
		synctest.Wait()
		second := getUse(s, newUse("p", m, "{}"))
		third := getUse(s, newUse("p", m, `{"other": 1}`)) // not validated
		if second.Phase != Ready || third.Evaluator != second.Evaluator || f.countOf(f.started, "p") != 1 {
			t.Errorf("got %+v and %+v", second, third)
		}
	})
}

func TestUse_SettingsAreValidatedOnce(t *testing.T) {
	f := newFake()
	f.hooks = append(f.hooks, hostabi.HookValidate)
	f.evaluate = func(_ context.Context, r hostabi.Request) (hostabi.Verdict, error) {
		if string(r.Policy.Settings) == "{}" {
			return hostabi.Verdict{Decision: hostabi.DecisionValid}, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionInvalid, Reason: "no such setting"}, nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		m := loadModule(t, s, inlineModule("", "m", "m"))
		for range 10 {
			getUse(s, newUse("p", m, "{}"))
			synctest.Wait()
		}
		good := getUse(s, newUse("p", m, "{}"))
		if n := f.countOf(f.validated, "p {}"); n != 1 || good.Phase != Ready {
			t.Errorf("validated %d times, got %+v", n, good)
		}
		if now := getUse(s, newUse("p", m, "[]")); now.Phase != Loading {
			t.Errorf("settings are used before validation: %+v", now)
		}
		synctest.Wait()
		settingsError := (*SettingsError)(nil)
		if bad := getUse(s, newUse("p", m, "[]")); bad.Phase != Failed || !errors.As(bad.Err, &settingsError) || settingsError.Reason != "no such setting" {
			t.Errorf("got %+v", bad)
		}
		getUse(s, newUse("p", m, "{}"))
		synctest.Wait()
		if again := getUse(s, newUse("p", m, "{}")); again.Evaluator != good.Evaluator || f.countOf(f.started, "p") != 1 {
			t.Errorf("got %+v", again)
		}
	})
}

func TestUse_PermanentStartFaultIsNotRetried(t *testing.T) {
	for kind, want := range map[policies.FaultKind]bool{policies.FaultFuelExhausted: true, policies.FaultTimedOut: false, "": false} {
		f := newFake()
		f.start = func(context.Context, StartOptions) error {
			if kind == "" {
				return errors.New("no worker")
			}
			return &policies.Fault{Kind: kind, Message: "it loops"}
		}
		runStore(t, f, func(t *testing.T, s *Store) {
			m := loadModule(t, s, inlineModule("", "m", "m"))
			for range 60 {
				getUse(s, newUse("p", m, "{}"))
				time.Sleep(time.Minute)
			}
			n := f.countOf(f.started, "p")
			if once := n == 1; once != want || n > 15 {
				t.Errorf("%q: it was started %d times in an hour", kind, n)
			}
		})
	}
}

func TestUse_UnusedInstanceIsFreedAfterTheLastCalls(t *testing.T) {
	f, release := newFake(), (chan struct{})(nil)
	f.evaluate = func(context.Context, hostabi.Request) (hostabi.Verdict, error) {
		<-release
		return hostabi.Verdict{Decision: hostabi.DecisionOrphan}, nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		release = make(chan struct{})
		m := loadModule(t, s, inlineModule("", "m", "m"))
		getUse(s, newUse("p", m, "{}"))
		synctest.Wait()
		e := getUse(s, newUse("p", m, "{}")).Evaluator
		s.NewUses().Commit()
		s.SetModules(nil)
		answered := make(chan error, 1)
		go func() {
			_, err := e.EvaluateMetered(t.Context(), hostabi.Request{Hook: hostabi.HookCollect})
			answered <- err
		}()
		time.Sleep(retirePeriod + time.Second)
		synctest.Wait()
		if f.countOf(f.closed, "p")+f.countOf(f.closed, "m") != 0 {
			t.Error("freed during a call")
		}
		if _, err := e.EvaluateMetered(t.Context(), hostabi.Request{}); !errors.Is(err, errRetired) {
			t.Errorf("it accepts calls: %v", err)
		}
		close(release)
		if err := <-answered; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if f.countOf(f.closed, "p") != 1 || f.countOf(f.closed, "m") != 1 {
			t.Errorf("not freed exactly once: %v", f.closed)
		}
	})
}

// Frequent changes of a module must not exhaust memory.
func TestUse_OneReplacedInstanceIsKeptPerPolicy(t *testing.T) {
	f := newFake()
	runStore(t, f, func(t *testing.T, s *Store) {
		for i := range 10 {
			m := loadModule(t, s, inlineModule("shop", "m", fmt.Sprint(i)))
			getUse(s, newUse("p", m, "{}"))
			time.Sleep(time.Second)
			getUse(s, newUse("p", m, "{}"))
		}
		synctest.Wait()
		if len(s.uses) != 2 || f.countOf(f.closed, "p") == 0 {
			t.Errorf("%d instances are kept", len(s.uses))
		}
	})
}

func TestUse_IsStartedWhenUsedAgain(t *testing.T) {
	f := newFake()
	f.start = func(ctx context.Context, _ StartOptions) error {
		time.Sleep(time.Second)
		return ctx.Err()
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		m := loadModule(t, s, inlineModule("", "m", "m"))
		getUse(s, newUse("p", m, "{}"))
		time.Sleep(time.Millisecond)
		s.NewUses().Commit() // while it is starting
		getUse(s, newUse("p", m, "{}"))
		time.Sleep(3 * time.Second)
		if state := getUse(s, newUse("p", m, "{}")); state.Phase != Ready {
			t.Errorf("got %+v", state)
		}
	})
}
