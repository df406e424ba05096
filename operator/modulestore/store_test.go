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

func TestStore_AHangingServerDelaysNoOtherModule(t *testing.T) {
	f := newFake()
	f.fetch = func(ctx context.Context, r Resource) (string, error) {
		if r.remote() && r.Name != "honest" {
			return "", blockUntilDone(ctx)
		}
		return r.Name, nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		var all []Resource
		for i := range 50 {
			all = append(all, remoteModule("evil", fmt.Sprint("slow", i)))
		}
		others := []Resource{inlineModule("evil", "inline", ""), remoteModule("shop", "honest"), inlineModule("shop", "inline", ""), remoteModule("", "honest"), inlineModule("", "inline", "")}
		s.SetModules(append(all, others...))
		synctest.Wait() // no time passes
		for _, r := range others {
			wantPhase(t, s, r, Ready)
		}
		wantPhase(t, s, all[0], Loading)
	})
}

func TestStore_SlowCompilationDelaysNoClusterModule(t *testing.T) {
	f := newFake()
	f.compile = func(ctx context.Context, text string) error {
		if text == "slow" {
			return blockUntilDone(ctx)
		}
		return nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		slow, cluster := inlineModule("evil", "slow", "slow"), inlineModule("", "cluster", "fast")
		s.SetModules([]Resource{slow, cluster})
		synctest.Wait()
		wantPhase(t, s, cluster, Ready)
		if state := wantPhase(t, s, slow, Loading); state.Step != Compiling {
			t.Errorf("it is %s", state.Step)
		}
	})
}

// Namespaces compile one module at a time. A namespace with many slow modules waits for
// one with a single module, not the other way round.
func TestStore_SharesCompileTimeBetweenNamespaces(t *testing.T) {
	f := newFake()
	f.compile = func(context.Context, string) error {
		time.Sleep(time.Minute)
		return nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		var all []Resource
		for i := range 20 {
			all = append(all, inlineModule("evil", fmt.Sprint("slow", i), fmt.Sprint(i)))
		}
		s.SetModules(all)
		time.Sleep(90 * time.Second) // the second is being compiled
		honest := inlineModule("shop", "honest", "honest")
		s.SetModules(append(all, honest))
		time.Sleep(90 * time.Second)
		synctest.Wait()
		wantPhase(t, s, honest, Ready)
	})
}

func TestStore_CompilesInvalidContentOnce(t *testing.T) {
	f := newFake()
	f.compile = func(_ context.Context, text string) error {
		if text == "bomb" {
			time.Sleep(time.Minute)
			return &CompileError{Message: "too much of it"}
		}
		return nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		invalid, duplicate := inlineModule("evil", "bomb", "bomb"), inlineModule("evil", "twin", "bomb")
		s.SetModules([]Resource{invalid, duplicate})
		for range 60 { // on every rebuild of the policy set
			time.Sleep(time.Minute)
			s.SetModules([]Resource{invalid, duplicate})
		}
		synctest.Wait()
		wantPhase(t, s, invalid, Failed)
		state := wantPhase(t, s, duplicate, Failed)
		if compileError := (*CompileError)(nil); !errors.As(state.Err, &compileError) || !state.NextRetry.IsZero() {
			t.Errorf("got %v, next retry %v", state.Err, state.NextRetry)
		}
		if n := f.countOf(f.compiled, "bomb"); n != 1 {
			t.Errorf("it was compiled %d times", n)
		}

		fixed := inlineModule("evil", "bomb", "good")
		s.SetModules([]Resource{fixed, duplicate})
		synctest.Wait()
		wantPhase(t, s, fixed, Ready)
	})
}

// Failures that the host may have caused are retried, with most of the time left to others.
func TestStore_RetriesTemporaryFailuresWithBackoff(t *testing.T) {
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
			runStore(t, f, func(t *testing.T, s *Store) {
				began := time.Now()
				m := inlineModule("evil", "m", "m")
				s.SetModules([]Resource{m})
				time.Sleep(took)
				synctest.Wait()
				if state := wantPhase(t, s, m, Failed); state.NextRetry.Sub(began) < workBackoffFactor*took {
					t.Errorf("retried after %v", state.NextRetry.Sub(began))
				}
				time.Sleep(time.Hour - took)
				if n := f.countOf(f.compiled, "m"); n < 2 || n > 20 {
					t.Errorf("it was compiled %d times in an hour", n)
				}
			})
		})
	}
}

func TestStore_LoadsAModuleAgainAfterASourceChange(t *testing.T) {
	f := newFake()
	f.compile = func(ctx context.Context, text string) error {
		if text == "slow" {
			return blockUntilDone(ctx)
		}
		return nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		first := inlineModule("shop", "m", "first")
		s.SetModules([]Resource{first})
		synctest.Wait()
		digest := wantPhase(t, s, first, Ready).Module.Digest

		s.SetModules([]Resource{inlineModule("shop", "m", "slow")})
		synctest.Wait()
		wantPhase(t, s, first, Loading)
		if state, _ := s.Get(first.Ref, digest); state.Phase != Ready || state.Module.Digest != digest {
			t.Errorf("the pinned content is not kept: %+v", state)
		}

		s.SetModules([]Resource{inlineModule("shop", "m", "third")}) // the slow compilation is canceled
		synctest.Wait()
		wantPhase(t, s, first, Ready)
	})
}

func TestStore_KeepsContentAfterLimitsChangeOrDeletion(t *testing.T) {
	f := newFake()
	runStore(t, f, func(t *testing.T, s *Store) {
		m := inlineModule("shop", "m", "first")
		s.SetModules([]Resource{m})
		synctest.Wait()
		fuel := int64(1)
		m.Spec.Limits = &v1alpha1.Limits{Fuel: &fuel}
		s.SetModules([]Resource{m})
		wantPhase(t, s, m, Ready)
		m.Terminating = true
		m.Spec.Rego = &v1alpha1.RegoSource{ConfigMap: &v1alpha1.ConfigMapKeyReference{Name: "gone"}}
		s.SetModules([]Resource{m})
		s.ConfigMapChanged(types.NamespacedName{Namespace: "shop", Name: "gone"})
		synctest.Wait()
		wantPhase(t, s, m, Ready)
		if n := f.countOf(f.fetched, "m"); n != 1 {
			t.Errorf("it was fetched %d times", n)
		}
	})
}

func TestStore_RefetchesAChangedConfigMap(t *testing.T) {
	f, text, fault := newFake(), "first", error(nil)
	f.fetch = func(context.Context, Resource) (string, error) { return text, fault }
	runStore(t, f, func(t *testing.T, s *Store) {
		m := Resource{Ref: Ref{"shop", "m"}, UID: "m", Spec: v1alpha1.PolicyModuleSpec{
			Wasm: &v1alpha1.WasmSource{ConfigMap: &v1alpha1.ConfigMapKeyReference{Namespace: "elsewhere", Name: "c"}},
		}}
		key := types.NamespacedName{Namespace: "shop", Name: "c"}
		s.SetModules([]Resource{m})
		synctest.Wait()
		first := wantPhase(t, s, m, Ready).Module

		changed := s.Changes().Changed()
		s.ConfigMapChanged(types.NamespacedName{Namespace: "elsewhere", Name: "c"})
		s.ConfigMapChanged(key)
		synctest.Wait()
		select {
		case <-changed:
			t.Error("an unchanged state was published")
		default:
		}
		if n := f.countOf(f.fetched, "m"); n != 2 {
			t.Errorf("it was fetched %d times", n)
		}

		fault = errors.New("no answer") // temporary: the content stays
		s.ConfigMapChanged(key)
		synctest.Wait()
		if state := wantPhase(t, s, m, Ready); state.Module.Digest != first.Digest || state.Err == nil {
			t.Errorf("got %+v", state)
		}
		fault = &source.Error{Reason: source.NotFound, Message: "there is no ConfigMap"}
		s.ConfigMapChanged(key)
		synctest.Wait()
		wantPhase(t, s, m, Failed)
		fault, text = nil, "second"
		s.ConfigMapChanged(key)
		synctest.Wait()
		if second := wantPhase(t, s, m, Ready).Module; second.Digest == first.Digest {
			t.Error("it is what it was")
		}
		if n := f.countOf(f.closed, "first"); n != 1 {
			t.Errorf("unused content was freed %d times", n)
		}
	})
}

func TestStore_StopsLoadingARemovedModule(t *testing.T) {
	f := newFake()
	f.compile = func(ctx context.Context, text string) error {
		if text == "slow" {
			return blockUntilDone(ctx)
		}
		return nil
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		slow, waiting := inlineModule("shop", "a", "slow"), inlineModule("shop", "b", "slow")
		s.SetModules([]Resource{slow, waiting})
		synctest.Wait()
		s.SetModules(nil)
		synctest.Wait()
		if _, ok := s.Get(slow.Ref, ""); ok || len(s.contents) != 0 {
			t.Errorf("something is left: %v", s.contents)
		}
		other := inlineModule("shop", "c", "fast")
		s.SetModules([]Resource{other})
		synctest.Wait()
		wantPhase(t, s, other, Ready)
	})
}

func TestStore_RefetchesUnpinnedModules(t *testing.T) {
	for _, unpinned := range []bool{false, true} {
		f := newFake()
		f.unpinned = unpinned
		runStore(t, f, func(t *testing.T, s *Store) {
			s.SetModules([]Resource{remoteModule("shop", "m")})
			time.Sleep(time.Hour + time.Second)
			synctest.Wait()
			want := 1
			if unpinned {
				want += int(time.Hour / refetchInterval)
			}
			if n := f.countOf(f.fetched, "m"); n != want {
				t.Errorf("unpinned: %t: it was fetched %d times, want %d", unpinned, n, want)
			}
		})
	}
}

func TestStore_ModulesFromFilesNeedNoUID(t *testing.T) {
	f := newFake()
	runStore(t, f, func(t *testing.T, s *Store) {
		a, b := inlineModule("", "a", "a"), inlineModule("", "b", "b")
		a.UID, b.UID = "", ""
		s.SetModules([]Resource{a, b})
		synctest.Wait()
		if x, y := wantPhase(t, s, a, Ready), wantPhase(t, s, b, Ready); x.Module.Digest == y.Module.Digest {
			t.Error("modules without UID are treated as one")
		}
		uses := s.NewUses()
		one, other := newUse("p", stateOf(t, s, a).Module, "{}"), newUse("q", stateOf(t, s, a).Module, "{}")
		one.UID, other.UID = "", ""
		uses.Get(one)
		uses.Get(other)
		synctest.Wait()
		if f.countOf(f.started, "p") != 1 || f.countOf(f.started, "q") != 1 {
			t.Error("two policies share an instance")
		}
	})
}
