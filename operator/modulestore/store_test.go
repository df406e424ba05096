package modulestore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies/source"
)

func TestStore_AServerThatNeverAnswersDelaysNoOtherModule(t *testing.T) {
	f := newFake()
	f.fetch = func(ctx context.Context, r Resource) (string, error) {
		if r.remote() && r.Name != "honest" {
			return "", never(ctx)
		}
		return r.Name, nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		var all []Resource
		for i := range 50 {
			all = append(all, remote("evil", fmt.Sprint("slow", i)))
		}
		others := []Resource{inline("evil", "inline", ""), remote("shop", "honest"), inline("shop", "inline", ""), remote("", "honest"), inline("", "inline", "")}
		s.SetModules(append(all, others...))
		synctest.Wait() // no time passes
		for _, r := range others {
			is(t, s, r, Ready)
		}
		is(t, s, all[0], Loading)
	})
}

func TestStore_ASlowCompilationOfANamespaceDelaysNoClusterModule(t *testing.T) {
	f := newFake()
	f.compile = func(ctx context.Context, text string) error {
		if text == "slow" {
			return never(ctx)
		}
		return nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		slow, cluster := inline("evil", "slow", "slow"), inline("", "cluster", "fast")
		s.SetModules([]Resource{slow, cluster})
		synctest.Wait()
		is(t, s, cluster, Ready)
		if state := is(t, s, slow, Loading); state.Step != Compiling {
			t.Errorf("it is %s", state.Step)
		}
	})
}

// One module at a time is compiled for namespaces. A namespace with many slow ones waits
// for another with one, and not the other way round.
func TestStore_NamespacesShareCompilationsByTheTimeTheyUse(t *testing.T) {
	f := newFake()
	f.compile = func(context.Context, string) error {
		time.Sleep(time.Minute)
		return nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		var all []Resource
		for i := range 20 {
			all = append(all, inline("evil", fmt.Sprint("slow", i), fmt.Sprint(i)))
		}
		s.SetModules(all)
		time.Sleep(90 * time.Second) // the second is being compiled
		honest := inline("shop", "honest", "honest")
		s.SetModules(append(all, honest))
		time.Sleep(90 * time.Second)
		synctest.Wait()
		is(t, s, honest, Ready)
	})
}

func TestStore_WhatDoesNotCompileIsCompiledOnce(t *testing.T) {
	f := newFake()
	f.compile = func(_ context.Context, text string) error {
		if text == "bomb" {
			time.Sleep(time.Minute)
			return &CompileError{Message: "too much of it"}
		}
		return nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		bomb, twin := inline("evil", "bomb", "bomb"), inline("evil", "twin", "bomb")
		s.SetModules([]Resource{bomb, twin})
		for range 60 { // as often as the set is built again
			time.Sleep(time.Minute)
			s.SetModules([]Resource{bomb, twin})
		}
		synctest.Wait()
		is(t, s, bomb, Failed)
		state := is(t, s, twin, Failed)
		if blamed := (*CompileError)(nil); !errors.As(state.Err, &blamed) || !state.NextRetry.IsZero() {
			t.Errorf("got %v, to be tried again %v", state.Err, state.NextRetry)
		}
		if n := f.counted(f.compiled, "bomb"); n != 1 {
			t.Errorf("it was compiled %d times", n)
		}

		mended := inline("evil", "bomb", "good")
		s.SetModules([]Resource{mended, twin})
		synctest.Wait()
		is(t, s, mended, Ready)
	})
}

// What came of an attempt that was the host's fault, or may have been, is tried again,
// with most of the time left to others.
func TestStore_ATemporaryFailureIsTriedAgainAfterAGrowingBackoff(t *testing.T) {
	const took = 20 * time.Second
	for claim, failure := range map[string]error{
		"of the host":   errors.New("no worker"),
		"of the module": &CompileError{Message: "it killed its worker", Temporary: true},
	} {
		t.Run(claim, func(t *testing.T) {
			f := newFake()
			f.compile = func(context.Context, string) error {
				time.Sleep(took)
				return failure
			}
			simulate(t, f, func(t *testing.T, s *Store) {
				began := time.Now()
				m := inline("evil", "m", "m")
				s.SetModules([]Resource{m})
				time.Sleep(took)
				synctest.Wait()
				if state := is(t, s, m, Failed); state.NextRetry.Sub(began) < reworkShare*took {
					t.Errorf("it is tried again after %v", state.NextRetry.Sub(began))
				}
				time.Sleep(time.Hour - took)
				if n := f.counted(f.compiled, "m"); n < 2 || n > 20 {
					t.Errorf("it was compiled %d times in an hour", n)
				}
			})
		})
	}
}

func TestStore_AModuleThatComesFromElsewhereIsLoadingUntilThatIsThere(t *testing.T) {
	f := newFake()
	f.compile = func(ctx context.Context, text string) error {
		if text == "slow" {
			return never(ctx)
		}
		return nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		first := inline("shop", "m", "first")
		s.SetModules([]Resource{first})
		synctest.Wait()
		digest := is(t, s, first, Ready).Module.Digest

		s.SetModules([]Resource{inline("shop", "m", "slow")})
		synctest.Wait()
		is(t, s, first, Loading)
		if state, _ := s.Get(first.Ref, digest); state.Phase != Ready || state.Module.Digest != digest {
			t.Errorf("what is pinned to the digest does not keep it: %+v", state)
		}

		s.SetModules([]Resource{inline("shop", "m", "third")}) // the slow one is given up
		synctest.Wait()
		is(t, s, first, Ready)
	})
}

func TestStore_LimitsAndDeletionLeaveAModuleAsItIs(t *testing.T) {
	f := newFake()
	simulate(t, f, func(t *testing.T, s *Store) {
		m := inline("shop", "m", "first")
		s.SetModules([]Resource{m})
		synctest.Wait()
		fuel := int64(1)
		m.Spec.Limits = &v1alpha1.Limits{Fuel: &fuel}
		s.SetModules([]Resource{m})
		is(t, s, m, Ready)
		m.Terminating = true
		m.Spec.Rego = &v1alpha1.RegoSource{ConfigMap: &v1alpha1.ConfigMapKeyReference{Name: "gone"}}
		s.SetModules([]Resource{m})
		s.ConfigMapChanged(types.NamespacedName{Namespace: "shop", Name: "gone"})
		synctest.Wait()
		is(t, s, m, Ready)
		if n := f.counted(f.fetched, "m"); n != 1 {
			t.Errorf("it was fetched %d times", n)
		}
	})
}

func TestStore_AConfigMapThatChangesIsFetchedAgain(t *testing.T) {
	f, text, fault := newFake(), "first", error(nil)
	f.fetch = func(context.Context, Resource) (string, error) { return text, fault }
	simulate(t, f, func(t *testing.T, s *Store) {
		m := Resource{Ref: Ref{"shop", "m"}, UID: "m", Spec: v1alpha1.PolicyModuleSpec{
			Wasm: &v1alpha1.WasmSource{ConfigMap: &v1alpha1.ConfigMapKeyReference{Namespace: "elsewhere", Name: "c"}},
		}}
		key := types.NamespacedName{Namespace: "shop", Name: "c"}
		s.SetModules([]Resource{m})
		synctest.Wait()
		first := is(t, s, m, Ready).Module

		changed := s.Changes().Changed()
		s.ConfigMapChanged(types.NamespacedName{Namespace: "elsewhere", Name: "c"})
		s.ConfigMapChanged(key)
		synctest.Wait()
		select {
		case <-changed:
			t.Error("a change is published where there is none")
		default:
		}
		if n := f.counted(f.fetched, "m"); n != 2 {
			t.Errorf("it was fetched %d times", n)
		}

		fault = errors.New("no answer") // for now: what is there stays
		s.ConfigMapChanged(key)
		synctest.Wait()
		if state := is(t, s, m, Ready); state.Module.Digest != first.Digest || state.Err == nil {
			t.Errorf("got %+v", state)
		}
		fault = &source.Error{Reason: source.NotFound, Message: "there is no ConfigMap"}
		s.ConfigMapChanged(key)
		synctest.Wait()
		is(t, s, m, Failed)
		fault, text = nil, "second"
		s.ConfigMapChanged(key)
		synctest.Wait()
		if second := is(t, s, m, Ready).Module; second.Digest == first.Digest {
			t.Error("it is what it was")
		}
		if n := f.counted(f.closed, "first"); n != 1 {
			t.Errorf("what nobody uses any more was freed %d times", n)
		}
	})
}

func TestStore_AModuleThatIsGoneIsNotLoaded(t *testing.T) {
	f := newFake()
	f.compile = func(ctx context.Context, text string) error {
		if text == "slow" {
			return never(ctx)
		}
		return nil
	}
	simulate(t, f, func(t *testing.T, s *Store) {
		slow, waiting := inline("shop", "a", "slow"), inline("shop", "b", "slow")
		s.SetModules([]Resource{slow, waiting})
		synctest.Wait()
		s.SetModules(nil)
		synctest.Wait()
		if _, ok := s.Get(slow.Ref, ""); ok || len(s.contents) != 0 {
			t.Errorf("something is left: %v", s.contents)
		}
		other := inline("shop", "c", "fast")
		s.SetModules([]Resource{other})
		synctest.Wait()
		is(t, s, other, Ready)
	})
}

func TestStore_FetchesAgainWhatMayHaveBecomeAnotherModule(t *testing.T) {
	for _, unpinned := range []bool{false, true} {
		f := newFake()
		f.unpinned = unpinned
		simulate(t, f, func(t *testing.T, s *Store) {
			s.SetModules([]Resource{remote("shop", "m")})
			time.Sleep(time.Hour + time.Second)
			synctest.Wait()
			want := 1
			if unpinned {
				want += int(time.Hour / refetch)
			}
			if n := f.counted(f.fetched, "m"); n != want {
				t.Errorf("unpinned: %t: it was fetched %d times, want %d", unpinned, n, want)
			}
		})
	}
}

func TestStore_ModulesOfFilesNeedNoUID(t *testing.T) {
	f := newFake()
	simulate(t, f, func(t *testing.T, s *Store) {
		a, b := inline("", "a", "a"), inline("", "b", "b")
		a.UID, b.UID = "", ""
		s.SetModules([]Resource{a, b})
		synctest.Wait()
		if x, y := is(t, s, a, Ready), is(t, s, b, Ready); x.Module.Digest == y.Module.Digest {
			t.Error("they are taken for one")
		}
		uses := s.NewUses()
		one, other := useOf("p", stateOf(t, s, a).Module, "{}"), useOf("q", stateOf(t, s, a).Module, "{}")
		one.UID, other.UID = "", ""
		uses.Get(one)
		uses.Get(other)
		synctest.Wait()
		if f.counted(f.started, "p") != 1 || f.counted(f.started, "q") != 1 {
			t.Error("two policies share an instance")
		}
	})
}
