package modulestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
)

// Modules are added, changed and removed, and fail, while snapshots are built and
// evaluated. Nothing is used after it was freed or freed twice (the fake panics), and in
// the end all modules are ready.
func TestHammer(t *testing.T) {
	f := newFake()
	f.hooks = append(f.hooks, hostabi.HookValidate)
	moment := func() { time.Sleep(time.Duration(rand.IntN(int(10 * time.Second)))) }
	f.evaluate = func(_ context.Context, r hostabi.Request) (hostabi.Verdict, error) {
		moment()
		if r.Hook == hostabi.HookValidate {
			return hostabi.Verdict{Decision: hostabi.DecisionValid}, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionOrphan}, nil
	}
	f.fetch = func(_ context.Context, r Resource) (string, error) {
		moment()
		if rand.IntN(4) == 0 {
			return "", errors.New("no answer")
		}
		return r.Spec.SHA256, nil
	}
	f.compile = func(context.Context, string) error {
		moment()
		if rand.IntN(4) == 0 {
			return errors.New("no worker")
		}
		return nil
	}
	f.start = func(ctx context.Context, _ StartOptions) error {
		moment()
		return ctx.Err()
	}
	runStore(t, f, func(t *testing.T, s *Store) {
		var calls sync.WaitGroup
		for round := range 300 {
			all := randomModules(6, 3, round%40 != 0)
			s.SetModules(all)
			s.ConfigMapChanged(types.NamespacedName{Namespace: "n0", Name: "m0"})
			for _, e := range commitSnapshot(s, all, fmt.Sprint(rand.IntN(2))) {
				calls.Go(func() {
					if _, err := e.EvaluateMetered(t.Context(), hostabi.Request{Hook: hostabi.HookCollect}); err != nil && !errors.Is(err, errRetired) {
						t.Error(err)
					}
				})
			}
			moment()
		}
		last := randomModules(6, 1, true)
		s.SetModules(last)
		for range 200 {
			time.Sleep(time.Minute)
			commitSnapshot(s, last, "0")
		}
		if n := len(commitSnapshot(s, last, "0")); n != len(last) {
			t.Errorf("%d of %d are ready in the end", n, len(last))
		}
		calls.Wait()
		s.NewUses().Commit()
		s.SetModules(nil)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.contents)+len(s.uses)+len(s.modules)+len(s.unused) != 0 {
			t.Errorf("left behind: %v, %v", s.contents, s.uses)
		}
	})
}

// randomModules returns modules, each with one of a number of contents.
func randomModules(names, contents int, any bool) (all []Resource) {
	for i := range names {
		if !any {
			continue
		}
		name, from := fmt.Sprint("m", i), fmt.Sprint("n", i%2)
		all = append(all, Resource{Ref: Ref{from, name}, UID: types.UID(name), Spec: v1alpha1.PolicyModuleSpec{
			SHA256: fmt.Sprint(rand.IntN(contents)),
			Wasm:   &v1alpha1.WasmSource{ConfigMap: &v1alpha1.ConfigMapKeyReference{Name: name}},
		}})
	}
	return all
}

// commitSnapshot uses each ready module by a policy, and returns the evaluators.
func commitSnapshot(s *Store, all []Resource, settings string) (ready []Evaluator) {
	uses := s.NewUses()
	defer uses.Commit()
	for _, r := range all {
		state, ok := s.Get(r.Ref, "")
		if !ok || state.Phase != Ready {
			continue
		}
		if used := uses.Get(newUse("p "+r.Name, state.Module, settings)); used.Phase == Ready {
			ready = append(ready, used.Evaluator)
		}
	}
	return ready
}
