package policyset_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// soon is how long something may take that needs no module.
	soon = 2 * time.Minute

	// compiling is how long a small module may take, with the race detector on a busy
	// machine.
	compiling = 5 * time.Minute
)

// eventually waits for a snapshot.
func eventually(t *testing.T, p *policyset.Publisher, timeout time.Duration, claim string, is func(*policyset.Snapshot) bool) {
	t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		changed := p.Changed()
		if s := p.Current(); s != nil && is(s) {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			t.Fatalf("not within %s: %s", timeout, claim)
		}
	}
}

func evaluates(name string) func(*policyset.Snapshot) bool {
	return func(s *policyset.Snapshot) bool {
		p := policysettest.PolicyOf(s, name)
		return p != nil && p.Policy.Evaluator != nil
	}
}

func TestPublisher_APolicyDoesNotWaitForTheModulesOfOthers(t *testing.T) {
	f := policysettest.New(t, nil, policysettest.EndlessModule("slow"), policysettest.Module("there", policysettest.KeepText),
		policysettest.ModulePolicy("hold", "slow", v1alpha1.OnFaultHold), policysettest.ModulePolicy("default", "slow", v1alpha1.OnFaultDefault), policysettest.ModulePolicy("ready", "there", v1alpha1.OnFaultDefault),
		&v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "fixed"), Spec: policysettest.Orphaning(nil)})
	f.Run()
	eventually(t, f.Publisher, soon, "a fixed verdict is in force", evaluates("fixed"))
	for _, name := range []string{"hold", "default"} {
		p := policysettest.PolicyOf(f.Publisher.Current(), name).Policy
		if p.Evaluator != nil || !p.Loading || p.OnFault != policies.OnFaultHold || !p.Enforce || !p.HooksUnknown || !strings.Contains(p.NotReadyReason, "it is being fetched") {
			t.Errorf("%s does not keep what it selects while its module is loading: %+v", name, p)
		}
	}
	eventually(t, f.Publisher, compiling, "a policy whose module is ready is in force", evaluates("ready"))
	if p := policysettest.PolicyOf(f.Publisher.Current(), "ready").Policy; p.OnFault != policies.OnFaultDefault {
		t.Error("onFault: Default is lost once the module is ready")
	}

	// Created later, while the source still does not answer.
	for _, o := range []client.Object{
		&v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "fixed-later"), Spec: policysettest.Orphaning(nil)}, policysettest.ModulePolicy("ready-later", "there", v1alpha1.OnFaultHold),
	} {
		if err := f.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	f.Publisher.Refresh()
	eventually(t, f.Publisher, soon, "a fixed verdict that was created later is in force", evaluates("fixed-later"))
	eventually(t, f.Publisher, compiling, "a policy that was created later is in force", evaluates("ready-later"))
	if evaluates("hold")(f.Publisher.Current()) {
		t.Error("a module that was not fetched is evaluated")
	}
}

func TestPublisher_AFinalizerIsServedOnceItsModuleIsReady(t *testing.T) {
	text := policysettest.FinalizeText
	f := &v1alpha1.Finalizer{ObjectMeta: policysettest.Meta("shop", "f"), Spec: v1alpha1.FinalizerSpec{
		Resources: policysettest.ConfigMaps(), Mode: v1alpha1.ModeEnforce, Module: v1alpha1.ModuleReference{Name: "m", Digest: policysettest.Digest(text)},
	}}
	m := &v1alpha1.PolicyModule{ObjectMeta: policysettest.Meta("shop", "m"), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
	slow := policysettest.EndlessModule("slow")
	evil := &v1alpha1.PolicyModule{ObjectMeta: policysettest.Meta("evil", "slow"), Spec: slow.Spec}
	waiting := &v1alpha1.Finalizer{ObjectMeta: policysettest.Meta("evil", "waiting"), Spec: f.Spec}
	waiting.Spec.Module.Name = "slow"
	x := policysettest.New(t, nil, f, m, slow, evil, waiting)
	x.Run()
	eventually(t, x.Publisher, compiling, "the finalizer is served", func(s *policyset.Snapshot) bool {
		for _, f := range s.Serving() {
			if f.Name == "f" {
				return f.Evaluator != nil
			}
		}
		return false
	})
	for _, f := range x.Publisher.Current().Serving() {
		if f.Loading != (f.Name == "waiting") {
			t.Errorf("%s: loading is %t", f, f.Loading)
		}
	}
}

// Whoever changes a module must not have policies decide by what it was, unless that is
// the same.
func TestPublisher_AChangedModuleHoldsUntilItIsReady(t *testing.T) {
	f := policysettest.New(t, nil, policysettest.Module("m", policysettest.KeepText), policysettest.ModulePolicy("p", "m", v1alpha1.OnFaultDefault))
	before := policysettest.PolicyOf(f.Settle(), "p").Policy
	if before.Evaluator == nil {
		t.Fatal(before.NotReadyReason)
	}
	m := &v1alpha1.ClusterPolicyModule{}
	if err := f.Client.Get(t.Context(), client.ObjectKey{Name: "m"}, m); err != nil {
		t.Fatal(err)
	}
	m.Spec = policysettest.EndlessModule("m").Spec
	f.Update(m)
	f.Run()
	eventually(t, f.Publisher, soon, "it is held", func(s *policyset.Snapshot) bool {
		p := policysettest.PolicyOf(s, "p").Policy
		return p.Evaluator == nil && p.OnFault == policies.OnFaultHold
	})
	m.Spec.SHA256 = before.Digest
	f.Update(m)
	f.Publisher.Refresh()
	eventually(t, f.Publisher, soon, "a module that is pinned to what it was is kept", func(s *policyset.Snapshot) bool {
		p := policysettest.PolicyOf(s, "p").Policy
		return p.Evaluator == before.Evaluator && p.OnFault == policies.OnFaultDefault
	})
}

// compiler counts what it compiles, which fails.
type compiler struct {
	mu    sync.Mutex // covers count
	count int
}

func (c *compiler) Compile(context.Context, modulestore.CompileRequest) (modulestore.Compiled, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	return nil, &modulestore.CompileError{Message: "it is too much"}
}

func TestPublisher_WhatDoesNotCompileIsCompiledOnceForAllSnapshots(t *testing.T) {
	c := &compiler{}
	f := policysettest.New(t, func(o *policysettest.Options) { o.Loader.Compiler = c }, policysettest.Module("m", policysettest.KeepText), policysettest.ModulePolicy("p", "m", v1alpha1.OnFaultDefault))
	for i := range int32(5) {
		hasProblem(t, policysettest.PolicyOf(f.Settle(), "p").Problem, v1alpha1.ConditionModuleReady, "DoesNotCompile", "it is too much")
		p := &v1alpha1.ClusterGCPolicy{}
		if err := f.Client.Get(t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
			t.Fatal(err)
		}
		p.Spec.Priority = i
		f.Update(p)
	}
	if c.count != 1 {
		t.Errorf("it was compiled %d times", c.count)
	}
}

// A new revision has many objects looked at again.
func TestPublisher_ASnapshotThatEvaluatesTheSameHasTheSameRevision(t *testing.T) {
	f := policysettest.New(t, nil, policysettest.EndlessModule("slow"), policysettest.Module("m", policysettest.KeepText), policysettest.ModulePolicy("p", "m", v1alpha1.OnFaultDefault))
	f.Run()
	eventually(t, f.Publisher, compiling, "the policy is ready", evaluates("p"))
	before := f.Publisher.Current()
	changed := f.Publisher.Changed()
	f.Loader.Store.Changes().Update(func(n uint64) uint64 { return n + 1 }) // as if a module had changed
	select {
	case <-changed:
	case <-time.After(soon):
		t.Fatal("no snapshot is published")
	}
	if after := f.Publisher.Current(); after == before || after.Revision != before.Revision {
		t.Errorf("revision %d after %d", after.Revision, before.Revision)
	}
	f.Publisher.Refresh()
	eventually(t, f.Publisher, soon, "resources that were read again are another revision", func(s *policyset.Snapshot) bool { return s.Revision > before.Revision })
}

// lagging reads what there is, or fails.
type lagging struct {
	client.Client
	err error
}

func (l *lagging) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if l.err != nil {
		return l.err
	}
	return l.Client.List(ctx, list, options...)
}

func TestPublisher_DoesNotCoverPoliciesThatOnlyAnotherReplicaHasRead(t *testing.T) {
	api := &lagging{Client: fake.NewClientBuilder().WithScheme(policysettest.Scheme(t)).Build()}
	replica := func() *policyset.Publisher {
		return policysettest.New(t, func(o *policysettest.Options) { o.Client = api }).Publisher
	}
	leader, follower := replica(), replica()
	read := func(p *policyset.Publisher) *policyset.Snapshot {
		t.Helper()
		s, err := p.Settle(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	fingerprint := func() string {
		t.Helper()
		s := read(leader)
		if !leader.Covers(s.Fingerprint) {
			t.Error("it does not cover what it has read itself")
		}
		return s.Fingerprint
	}
	none := fingerprint()
	if follower.Covers(none) {
		t.Error("it covers something before it has read anything")
	}
	read(follower)

	p := &v1alpha1.GCPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "u", Generation: 1}, Spec: policysettest.Keeping(nil, policysettest.ConfigMaps()...)}
	if err := api.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	created := fingerprint()
	if follower.Covers(created) {
		t.Error("it covers a policy that it has not read")
	}
	api.err = errors.New("no answer")
	if _, err := follower.Settle(t.Context()); err == nil || follower.Covers(created) {
		t.Errorf("it covers a policy that it could not read: %v", err)
	}
	api.err = nil
	if read(follower); !follower.Covers(created) || !follower.Covers(none) {
		t.Error("it does not cover what it has read")
	}

	// Two changes, of which the follower finds only the second.
	for p.Generation = 2; p.Generation < 4; p.Generation++ {
		if err := api.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if p.Generation == 2 {
			created = fingerprint()
		}
	}
	if follower.Covers(created) {
		t.Error("it covers a change that it has not read")
	}
	if read(follower); !follower.Covers(created) {
		t.Error("it does not cover what was replaced before it was read")
	}
}

// One module must not have a replica reject deletes of what others govern: what it governs
// is held until it is ready, and all else is decided.
func TestPublisher_CoversASnapshotWithModulesThatAreLoading(t *testing.T) {
	f := policysettest.New(t, nil, policysettest.EndlessModule("slow"), policysettest.ModulePolicy("p", "slow", v1alpha1.OnFaultHold))
	f.Run()
	eventually(t, f.Publisher, soon, "there is a snapshot", func(s *policyset.Snapshot) bool { return s.Loading() })
	if !f.Publisher.Covers(f.Publisher.Current().Fingerprint) {
		t.Error("it does not cover what is in force")
	}
}
