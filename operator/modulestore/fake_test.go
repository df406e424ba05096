package modulestore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// fake fetches and compiles as a test says, and counts. Its texts are the modules'.
type fake struct {
	mu       sync.Mutex // covers what follows
	fetched  map[string]int
	compiled map[string]int
	started  map[string]int
	asked    map[string]int // to validate, by policy and settings
	closed   map[string]int // instances by policy, and modules by text

	// Each may be nil. Called without the lock.
	fetch   func(ctx context.Context, r Resource) (string, error)
	compile func(ctx context.Context, text string) error
	start   func(ctx context.Context, o StartOptions) error
	answer  func(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error)

	unpinned bool
	hooks    []hostabi.Hook
}

func newFake() *fake {
	return &fake{
		fetched: map[string]int{}, compiled: map[string]int{}, started: map[string]int{}, asked: map[string]int{}, closed: map[string]int{},
		hooks: []hostabi.Hook{hostabi.HookCollect},
	}
}

func (f *fake) count(of map[string]int, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of[key]++
}

// counted is how often something was done.
func (f *fake) counted(of map[string]int, key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return of[key]
}

func (f *fake) Fetch(ctx context.Context, r Resource) (source.Fetched, error) {
	f.count(f.fetched, r.Name)
	text := r.Name
	if inline := r.Spec.Rego; inline != nil && inline.Inline != nil {
		text = *inline.Inline
	}
	if f.fetch != nil {
		var err error
		if text, err = f.fetch(ctx, r); err != nil {
			return source.Fetched{}, err
		}
	}
	files := []source.File{{Data: []byte(text)}}
	return source.Fetched{Files: files, Digest: source.Digest(files), Pinned: !f.unpinned}, nil
}

func (f *fake) Compile(ctx context.Context, r CompileRequest) (Compiled, error) {
	text := string(r.Files[0].Data)
	f.count(f.compiled, text)
	if f.compile != nil {
		if err := f.compile(ctx, text); err != nil {
			return nil, err
		}
	}
	return &fakeModule{fake: f, text: text}, nil
}

type fakeModule struct {
	*fake
	text   string
	ended  atomic.Bool
	opened atomic.Int32 // instances that are not closed
}

func (m *fakeModule) Hooks() []hostabi.Hook { return m.hooks }

func (m *fakeModule) Start(ctx context.Context, o StartOptions) (Instance, error) {
	m.count(m.started, o.Policy)
	if m.start != nil {
		if err := m.start(ctx, o); err != nil {
			return nil, err
		}
	}
	if m.ended.Load() {
		panic("started after Close")
	}
	m.opened.Add(1)
	return &fakeInstance{fakeModule: m, policy: o.Policy}, nil
}

func (m *fakeModule) Close() {
	if m.ended.Swap(true) || m.opened.Load() != 0 {
		panic("closed twice, or while there are instances")
	}
	m.count(m.closed, m.text)
}

type fakeInstance struct {
	*fakeModule
	policy string
	over   atomic.Bool
	calls  atomic.Int32
}

func (i *fakeInstance) Name() string { return i.policy }

func (i *fakeInstance) Close() {
	if i.over.Swap(true) || i.calls.Load() != 0 {
		panic("closed twice, or while it is called")
	}
	i.opened.Add(-1)
	i.count(i.closed, i.policy)
}

func (i *fakeInstance) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	answer, err := i.Ask(ctx, r)
	return answer.Verdict, err
}

func (i *fakeInstance) Ask(ctx context.Context, r hostabi.Request) (policies.Answer, error) {
	i.calls.Add(1)
	defer i.calls.Add(-1)
	if i.over.Load() {
		panic("called after Close")
	}
	if r.Hook == hostabi.HookValidate {
		i.count(i.asked, i.policy+" "+string(r.Policy.Settings))
	}
	if i.answer == nil {
		return policies.Answer{Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan, Reason: i.text}}, nil
	}
	verdict, err := i.answer(ctx, r)
	return policies.Answer{Verdict: verdict}, err
}

// simulate runs a Store in simulated time.
func simulate(t *testing.T, f *fake, test func(t *testing.T, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Compiler: f, Fetch: f.Fetch})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		test(t, s)
		cancel()
		running.Wait()
	})
}

// inline is a module with its text in the resource; in no namespace it is cluster-scoped.
func inline(namespace, name, text string) Resource {
	return Resource{Ref: Ref{namespace, name}, UID: types.UID(namespace + "/" + name), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
}

// remote is a module on a server.
func remote(namespace, name string) Resource {
	return Resource{Ref: Ref{namespace, name}, UID: types.UID(namespace + "/" + name), Spec: v1alpha1.PolicyModuleSpec{Wasm: &v1alpha1.WasmSource{URL: "https://example.com/" + name}}}
}

func stateOf(t *testing.T, s *Store, r Resource) State {
	t.Helper()
	state, ok := s.Get(r.Ref, "")
	if !ok {
		t.Fatalf("%s is not in the store", r.Ref)
	}
	return state
}

// is requires the phase of a module.
func is(t *testing.T, s *Store, r Resource, want Phase) State {
	t.Helper()
	state := stateOf(t, s, r)
	if state.Phase != want {
		t.Errorf("%s is %q (%v), want %q", r.Ref, state.Phase, state.Err, want)
	}
	return state
}

func useOf(policy string, m Module, settings string) Use {
	return Use{UID: types.UID(policy), Policy: policy, Module: m, Settings: hostabi.Policy{Name: policy, Namespace: "shop", Settings: []byte(settings)}}
}

// never blocks until its context ends.
func never(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("given up: %w", context.Cause(ctx))
}
