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

// fake fetches and compiles modules as configured by a test, and counts calls. A text is
// the content of a module.
type fake struct {
	mu        sync.Mutex // protects the fields below
	fetched   map[string]int
	compiled  map[string]int
	started   map[string]int
	validated map[string]int // validations, by policy and settings
	closed    map[string]int // instances by policy, and modules by text

	// Each may be nil. Called without the lock.
	fetch    func(ctx context.Context, r Resource) (string, error)
	compile  func(ctx context.Context, text string) error
	start    func(ctx context.Context, o StartOptions) error
	evaluate func(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error)

	unpinned bool
	hooks    []hostabi.Hook
	signers  []string
}

func newFake() *fake {
	return &fake{
		fetched: map[string]int{}, compiled: map[string]int{}, started: map[string]int{}, validated: map[string]int{}, closed: map[string]int{},
		hooks: []hostabi.Hook{hostabi.HookCollect},
	}
}

func (f *fake) count(counters map[string]int, key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counters[key]++
}

// countOf returns a counter.
func (f *fake) countOf(counters map[string]int, key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return counters[key]
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
	return source.Fetched{Files: files, Digest: source.Digest(files), Pinned: !f.unpinned, Signers: f.signers}, nil
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
	text          string
	freed         atomic.Bool
	openInstances atomic.Int32 // instances that are not closed
}

func (m *fakeModule) Hooks() []hostabi.Hook { return m.hooks }

func (m *fakeModule) Needs() policies.Needs { return policies.NeedsObject }

func (m *fakeModule) Start(ctx context.Context, o StartOptions) (Instance, error) {
	m.count(m.started, o.Policy)
	if m.start != nil {
		if err := m.start(ctx, o); err != nil {
			return nil, err
		}
	}
	if m.freed.Load() {
		panic("started after Close")
	}
	m.openInstances.Add(1)
	return &fakeInstance{fakeModule: m, policy: o.Policy}, nil
}

func (m *fakeModule) Close() {
	if m.freed.Swap(true) || m.openInstances.Load() != 0 {
		panic("closed twice, or while there are instances")
	}
	m.count(m.closed, m.text)
}

type fakeInstance struct {
	*fakeModule
	policy string
	ended  atomic.Bool
	calls  atomic.Int32
}

func (i *fakeInstance) Name() string { return i.policy }

func (i *fakeInstance) Close() {
	if i.ended.Swap(true) || i.calls.Load() != 0 {
		panic("closed twice, or while it is called")
	}
	i.openInstances.Add(-1)
	i.count(i.closed, i.policy)
}

func (i *fakeInstance) Evaluate(ctx context.Context, r hostabi.Request) (hostabi.Verdict, error) {
	evaluation, err := i.EvaluateMetered(ctx, r)
	return evaluation.Verdict, err
}

func (i *fakeInstance) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	i.calls.Add(1)
	defer i.calls.Add(-1)
	if i.ended.Load() {
		panic("called after Close")
	}
	if r.Hook == hostabi.HookValidate {
		i.count(i.validated, i.policy+" "+string(r.Policy.Settings))
	}
	if i.evaluate == nil {
		return policies.Evaluation{Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan, Reason: i.text}}, nil
	}
	verdict, err := i.evaluate(ctx, r)
	return policies.Evaluation{Verdict: verdict}, err
}

// runStore runs a Store in simulated time.
func runStore(t *testing.T, f *fake, test func(t *testing.T, s *Store)) {
	t.Helper()
	simulateWith(t, f, Options{}, test)
}

func simulateWith(t *testing.T, f *fake, o Options, test func(t *testing.T, s *Store)) {
	t.Helper()
	o.Compiler, o.Fetch = f, f.Fetch
	synctest.Test(t, func(t *testing.T) {
		s := New(o)
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

// inlineModule returns a module with inline content; without a namespace it is cluster-scoped.
func inlineModule(namespace, name, text string) Resource {
	return Resource{Ref: Ref{namespace, name}, UID: types.UID(namespace + "/" + name), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
}

// remoteModule returns a module that is downloaded.
func remoteModule(namespace, name string) Resource {
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

// wantPhase asserts the phase of a module.
func wantPhase(t *testing.T, s *Store, r Resource, want Phase) State {
	t.Helper()
	state := stateOf(t, s, r)
	if state.Phase != want {
		t.Errorf("%s is %q (%v), want %q", r.Ref, state.Phase, state.Err, want)
	}
	return state
}

func newUse(policy string, m Module, settings string) Use {
	return Use{UID: types.UID(policy), Policy: policy, Module: m, Settings: hostabi.Policy{Name: policy, Namespace: "shop", Settings: []byte(settings)}}
}

// blockUntilDone blocks until its context ends.
func blockUntilDone(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("given up: %w", context.Cause(ctx))
}
