package modules

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/policies"
)

func inline(name string) *v1alpha1.ClusterPolicyModule {
	text := keepText
	return &v1alpha1.ClusterPolicyModule{ObjectMeta: named("", name), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
}

func deciding(name, module string, onFault v1alpha1.OnFault) *v1alpha1.ClusterGCPolicy {
	return &v1alpha1.ClusterGCPolicy{ObjectMeta: named("", name), Spec: v1alpha1.GCPolicySpec{
		Resources: configMaps(), Mode: v1alpha1.ModeEnforce, OnFault: onFault, Module: &v1alpha1.ModuleReference{Name: module, Digest: digestOf(keepText)},
	}}
}

// inForce are the policies of a set by name.
func inForce(set *policies.Set) map[string]*policies.Policy {
	by := map[string]*policies.Policy{}
	for _, p := range set.All() {
		by[p.Name] = p
	}
	return by
}

// unanswered is a module that is fetched for ever.
func unanswered(name string) *v1alpha1.ClusterPolicyModule {
	from := &v1alpha1.ConfigMapKeyReference{Namespace: "shop", Name: endless, Key: "m.wasm"}
	return &v1alpha1.ClusterPolicyModule{ObjectMeta: named("", name), Spec: v1alpha1.PolicyModuleSpec{Wasm: &v1alpha1.WasmSource{ConfigMap: from}}}
}

// endless is the name of what stuck never reads.
const endless = "endless"

// stuck gives no answer about some objects.
type stuck struct{ client.Client }

func (s stuck) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if key.Name == endless {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Client.Get(ctx, key, o, options...)
}

const (
	// within is how soon something has to be in force that needs no module.
	within = 10 * time.Second

	// compiling is how long a small module may take, with the race detector on a busy
	// machine. One that is stuck is so for ever.
	compiling = time.Minute
)

// running is a keeper that runs, and sees no changes but those that a test tells it.
func running(t *testing.T, k *Keeper) *Keeper {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return k
}

// eventually waits until something is so, by each set that is put into force.
func eventually(t *testing.T, timeout time.Duration, changes <-chan struct{}, claim string, is func() bool) {
	t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for !is() {
		select {
		case <-changes:
		case <-timer.C:
			t.Fatalf("not within %s: %s", timeout, claim)
		}
	}
}

func evaluated(k *Keeper, name string) func() bool {
	return func() bool {
		p := inForce(k.Policies())[name]
		return p != nil && p.Asker != nil
	}
}

func served(k *Keeper, name string) func() bool {
	return func() bool {
		all, _ := k.Finalizers()
		for _, f := range all {
			if f.Name == name {
				return f.Asker != nil
			}
		}
		return false
	}
}

// changing has a keeper tell of each set that it puts into force.
func changing(changes chan struct{}) func(*Options) {
	return func(o *Options) {
		o.OnChange = func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}
}

func TestLoading_APolicyDoesNotWaitForTheModulesOfOthers(t *testing.T) {
	changes := make(chan struct{}, 1)
	k := running(t, keeper(t, changing(changes), unanswered("slow"), inline("there"),
		deciding("hold", "slow", v1alpha1.OnFaultHold), deciding("default", "slow", v1alpha1.OnFaultDefault), deciding("ready", "there", v1alpha1.OnFaultDefault),
		&v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "fixed"), Spec: looking(nil)}))
	eventually(t, within, changes, "a fixed verdict is in force", evaluated(k, "fixed"))
	for _, name := range []string{"hold", "default"} {
		p := inForce(k.Policies())[name]
		if p == nil || p.Asker != nil || !p.Loading || p.OnFault != policies.OnFaultHold || !p.Enforce || !p.Unsure || !strings.Contains(p.NotReady, "it is being fetched") {
			t.Errorf("%s does not keep what it selects while its module is loading: %+v", name, p)
		}
	}
	eventually(t, compiling, changes, "a policy whose module is ready is in force", evaluated(k, "ready"))
	if p := inForce(k.Policies())["ready"]; p.OnFault != policies.OnFaultDefault {
		t.Error("onFault: Default is forgotten once the module is there")
	}

	// Created later, while the server still does not answer.
	for _, o := range []client.Object{
		&v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "fixed-later"), Spec: looking(nil)}, deciding("ready-later", "there", v1alpha1.OnFaultHold),
	} {
		if err := k.source.(client.Client).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	k.TypesChanged()
	eventually(t, within, changes, "a fixed verdict that was created later is in force", evaluated(k, "fixed-later"))
	eventually(t, compiling, changes, "a policy that was created later is in force", evaluated(k, "ready-later"))
	if evaluated(k, "hold")() {
		t.Error("the module that is not there is evaluated")
	}
}

func TestLoading_AFinalizerIsServedWhoseModuleIsReady(t *testing.T) {
	text := "package gleaner\n\nfinalize := {\"decision\": \"Done\"}\n"
	f := &v1alpha1.Finalizer{ObjectMeta: named("shop", "f"), Spec: v1alpha1.FinalizerSpec{
		Resources: configMaps(), Mode: v1alpha1.ModeEnforce, Module: v1alpha1.ModuleReference{Name: "m", Digest: digestOf(text)},
	}}
	m := &v1alpha1.PolicyModule{ObjectMeta: named("shop", "m"), Spec: v1alpha1.PolicyModuleSpec{Rego: &v1alpha1.RegoSource{Inline: &text}}}
	slow := unanswered("slow")
	evil := &v1alpha1.PolicyModule{ObjectMeta: named("evil", "slow"), Spec: slow.Spec}
	waiting := &v1alpha1.Finalizer{ObjectMeta: named("evil", "waiting"), Spec: f.Spec}
	waiting.Spec.Module.Name = "slow"
	changes := make(chan struct{}, 1)
	k := running(t, keeper(t, changing(changes), f, m, slow, evil, waiting))
	eventually(t, compiling, changes, "the finalizer is served", served(k, "f"))
	all, _ := k.Finalizers()
	for _, f := range all {
		if f.Loading != (f.Name == "waiting") {
			t.Errorf("%s: loading is %t", f, f.Loading)
		}
	}
}

func TestLoading_StatusSaysSo(t *testing.T) {
	k := loading(t, keeper(t, nil, unanswered("slow"), deciding("p", "slow", v1alpha1.OnFaultDefault)))
	b, err := k.rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, p := b.modules[0], b.policies[0]
	m.status.Digest = "of another module"
	meta.SetStatusCondition(&m.status.Conditions, metav1.Condition{Type: v1alpha1.ConditionCompiled, Status: metav1.ConditionTrue, Reason: "Compiled"})
	m.describe()
	k.describe(b, p)
	has(t, m.status.Conditions, v1alpha1.ConditionFetched, metav1.ConditionFalse, "Loading", "it is being fetched")
	has(t, m.status.Conditions, v1alpha1.ConditionCompiled, metav1.ConditionFalse, "Loading", "")
	has(t, p.status.Conditions, v1alpha1.ConditionModuleReady, metav1.ConditionFalse, "Loading", "it is being fetched; meanwhile the objects that it governs are kept")
	has(t, p.status.Conditions, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "NotReady", "are kept")
	if m.status.Digest != "" || m.status.Hooks != nil {
		t.Errorf("it says what the module was: %+v", m.status)
	}
}

func TestLoading_IsNoEvent(t *testing.T) {
	at := func(is metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionModuleReady, Status: is, Reason: reason}
	}
	ready, bad, loading := at(metav1.ConditionTrue, "Ready"), at(metav1.ConditionFalse, "NotFound"), at(metav1.ConditionFalse, "Loading")
	for _, c := range []struct {
		claim    string
		was, now metav1.Condition
		news     bool
	}{
		{"begins", ready, loading, false},
		{"ends well", loading, ready, false},
		{"ends badly", loading, bad, true},
	} {
		if _, news := tidings(&c.was, c.now); news != c.news {
			t.Errorf("it %s: told %t, want %t", c.claim, news, c.news)
		}
	}
}

// The API server would not put holds on new objects any more while a module is loading
// again, such as after every restart.
func TestLoading_LeavesAdmissionObjectsAsTheyAre(t *testing.T) {
	f := &v1alpha1.ClusterFinalizer{ObjectMeta: named("", "f")}
	f.Finalizers = []string{InUse}
	f.Spec.Finalizer, f.Spec.Mode, f.Spec.Attach, f.Spec.Module.Name, f.Spec.Resources = "example.com/f", v1alpha1.ModeEnforce, true, "slow", configMaps()
	monitor := deciding("monitor", "slow", v1alpha1.OnFaultHold)
	monitor.Spec.Mode = v1alpha1.ModeMonitor
	k := loading(t, keeper(t, nil, unanswered("slow"), f, monitor, deciding("p", "slow", v1alpha1.OnFaultDefault), deciding("none", "missing", v1alpha1.OnFaultHold)))
	b, err := k.rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	retained := b.retained()
	if len(retained) != 2 || retained[holdPrefix+"p"] != graph.Hold || retained[attachPrefix+"f"] != "example.com/f" {
		t.Errorf("got %v", retained)
	}
	for name, finalizer := range retained {
		if placed, ok := k.Placed(name); !ok || placed != finalizer {
			t.Errorf("the webhook does not place %s for %s", finalizer, name)
		}
	}
}

// Whoever changes a module must not have policies decide by what it was, unless that is
// the same.
func TestLoading_AChangedModuleHoldsUntilItIsThere(t *testing.T) {
	k := loading(t, keeper(t, nil, inline("m"), deciding("p", "m", v1alpha1.OnFaultDefault)))
	b, err := k.settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := inForce(k.Policies())["p"]
	if before.Asker == nil {
		t.Fatal(before.NotReady)
	}
	m := b.modules[0].object.(*v1alpha1.ClusterPolicyModule)
	changed := unanswered("m")
	m.Spec = changed.Spec
	m.Generation++
	if err := k.source.(client.Client).Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if _, err := k.rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := inForce(k.Policies())["p"]; p.Asker != nil || p.OnFault != policies.OnFaultHold {
		t.Errorf("it decides by what the module was: %+v", p)
	}
	m.Spec.SHA256 = before.Digest
	m.Generation++
	if err := k.source.(client.Client).Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if _, err := k.rebuild(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := inForce(k.Policies())["p"]; p.Asker != before.Asker || p.OnFault != policies.OnFaultDefault {
		t.Errorf("it does not keep a module that is pinned to what it was: %+v", p)
	}
}

// One module must not have a replica refuse what others govern: what goes by it is held
// until it is there, and all else is decided.
func TestLoading_AReplicaIsUpToWhatItHolds(t *testing.T) {
	k := loading(t, keeper(t, nil, unanswered("slow"), deciding("p", "slow", v1alpha1.OnFaultHold)))
	b, err := k.rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !k.UpTo(b.state) {
		t.Error("it is not up to what is in force")
	}
}

func TestLoading_ASingleReadingWaitsForModules(t *testing.T) {
	k := keeper(t, nil, inline("m"), deciding("p", "m", v1alpha1.OnFaultHold))
	r, err := Read(t.Context(), k.options)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p := inForce(r.Policies)["p"]; p.Asker == nil {
		t.Errorf("got %+v", p)
	}
}

// compiler counts what it compiles, which fails.
type compiler struct {
	mu    sync.Mutex // covers what follows
	count int
}

func (c *compiler) Compile(context.Context, modulestore.CompileRequest) (modulestore.Compiled, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	return nil, &modulestore.CompileError{Message: "it is too much"}
}

func TestLoading_WhatDoesNotCompileIsCompiledOnceForAllBuilds(t *testing.T) {
	c := &compiler{}
	k := loading(t, keeper(t, func(o *Options) { o.Compiler = c }, inline("m"), deciding("p", "m", v1alpha1.OnFaultDefault)))
	for i := range int64(5) {
		b, err := k.settled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k.describe(b, b.policies[0])
		has(t, b.policies[0].status.Conditions, v1alpha1.ConditionModuleReady, metav1.ConditionFalse, "DoesNotCompile", "it is too much; meanwhile objects go as if it were not there")
		p := &v1alpha1.ClusterGCPolicy{}
		if err := k.source.Get(t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
			t.Fatal(err)
		}
		p.Spec.Priority, p.Generation = int32(i), i+2
		if err := k.source.(client.Client).Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if c.count != 1 {
		t.Errorf("it was compiled %d times", c.count)
	}
}

// Each set that is put into force has many objects looked at again.
func TestLoading_ABuildThatEvaluatesTheSameIsNoChange(t *testing.T) {
	changes := 0
	k := loading(t, keeper(t, func(o *Options) { o.OnChange = func() { changes++ } },
		inline("m"), deciding("p", "m", v1alpha1.OnFaultDefault), &v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "fixed"), Spec: looking(nil)}))
	b, err := k.settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := changes
	if k.again(b); changes != before {
		t.Error("it is told as one")
	}
}

// What a policy answers is not known while its module is loading, and so neither is
// whether others come after it.
func TestLoading_LeavesOverlapsAsTheyWere(t *testing.T) {
	fixed := &v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "z"), Spec: keeping(nil, configMaps()...)}
	k := loading(t, keeper(t, nil, unanswered("slow"), deciding("a", "slow", v1alpha1.OnFaultHold), fixed))
	b, err := k.rebuild(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := b.policies[slices.IndexFunc(b.policies, func(p *policyState) bool { return p.key.Name == "z" })]
	meta.SetStatusCondition(&p.status.Conditions, metav1.Condition{Type: v1alpha1.ConditionOverlapping, Status: metav1.ConditionFalse, Reason: "First"})
	k.describe(b, p)
	has(t, p.status.Conditions, v1alpha1.ConditionOverlapping, metav1.ConditionFalse, "First", "")
}
