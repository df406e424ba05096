package worker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

func newPool(t testing.TB, c Config) *Pool {
	t.Helper()
	if c.Log.GetSink() == nil {
		c.Log = logr.Discard()
	}
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// faultyPool has workers that are faulty in one way.
func faultyPool(t *testing.T, how string) *Pool {
	t.Helper()
	return newPool(t, Config{Command: []string{"/proc/self/exe", "faulty-" + how}, Workers: 1, Memory: 128 << 20})
}

func regoSource(namespace, name, text string) Source {
	return Source{Engine: Rego, Name: name, Namespace: namespace, Digest: fmt.Sprint(len(text), text), Files: []File{{Name: "policy.rego", Data: []byte(text)}}}
}

const keepLabeled = `package gleaner
default collect := {"decision": "Abstain"}
collect := {"decision": "Orphan", "reason": "it is labeled"} if input.object.metadata.labels.keep == "true"`

// start compiles a module and starts it for a policy.
func start(t testing.TB, p *Pool, s Source, limits sandbox.Limits) *Policy {
	t.Helper()
	m, err := p.Compile(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := m.Start(t.Context(), StartOptions{Name: "GCPolicy " + s.Namespace + "/" + s.Name, Namespace: s.Namespace, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func collectRequest(namespace string, labels map[string]string) hostabi.Request {
	return hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookCollect, Time: time.Unix(1_800_000_000, 0).UTC(), Attempt: 1, Round: 1,
		Object: hostabi.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: hostabi.Metadata{
			Namespace: namespace, Name: "a", UID: "u", ResourceVersion: "1", Labels: labels,
		}},
	}
}

// module is WebAssembly that answers collect with a verdict, after it has run code.
func module(code ...[]byte) *asm.Module {
	const at = 1024
	verdict := `{"decision": "Abstain"}`
	m := &asm.Module{}
	write := m.Import("gleaner_v1", "verdict_write", []byte{asm.I32, asm.I32}, nil)
	m.Memory(1, 1<<10)
	m.Data(at, []byte(verdict))
	m.Hook("collect", append(code, asm.Call(write, at, int32(len(verdict))))...)
	return m
}

func wasmSource(namespace, name string, m *asm.Module) Source {
	code := m.Bytes()
	return Source{Engine: Wasm, Name: name, Namespace: namespace, Digest: fmt.Sprintf("%x", code), Files: []File{{Data: code}}}
}

func TestAModuleIsEvaluatedInAWorker(t *testing.T) {
	p := newPool(t, Config{})
	for _, namespace := range []string{"", "shop"} {
		policy := start(t, p, regoSource(namespace, "keep", keepLabeled), sandbox.Limits{})
		for labels, want := range map[string]hostabi.Decision{"true": hostabi.DecisionOrphan, "false": hostabi.DecisionAbstain} {
			answer, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", map[string]string{"keep": labels}))
			if err != nil || answer.Verdict.Decision != want || answer.Fuel == 0 {
				t.Errorf("keep=%s: %v with %d units of fuel, error %v; want %s", labels, answer.Verdict, answer.Fuel, err, want)
			}
		}
	}
	if got := p.Stats().Started; got[ScopeCluster] != 2 || got[ScopeNamespace] != 2 {
		t.Errorf("workers that were started: %v; want one to compile and one to evaluate for each scope", got)
	}
}

func TestAModuleOfWebAssemblyIsEvaluatedInAWorker(t *testing.T) {
	policy := start(t, newPool(t, Config{}), wasmSource("shop", "abstains", module()), sandbox.Limits{})
	answer, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil))
	if err != nil || answer.Verdict.Decision != hostabi.DecisionAbstain {
		t.Errorf("verdict %v, error %v", answer.Verdict, err)
	}
}

func TestASourceThatDoesNotCompileIsRefusedWithItsPlace(t *testing.T) {
	_, err := newPool(t, Config{}).Compile(t.Context(), regoSource("", "bad", "package gleaner\ncollect := nonsense(1)"))
	refusal := (*RejectedError)(nil)
	if !errors.As(err, &refusal) || refusal.Temporary || !strings.Contains(refusal.Message, "policy.rego:2") {
		t.Errorf("error is %v", err)
	}
}

// TestAWorkerThatIsFaultyGivesNoVerdict covers all that a worker could do wrong, whether
// by a flaw or because a module has taken it over.
func TestAWorkerThatIsFaultyGivesNoVerdict(t *testing.T) {
	for how, want := range map[string]policies.FaultKind{
		"hog": policies.FaultCrashed, "exits": policies.FaultCrashed,
		"nonsense": policies.FaultInvalidVerdict,
		// Nobody knows what caused these, so the host is at fault and the object is kept.
		"hang": "", "threadless": "", "half": "", "garbage": "", "huge": "", "closes": "", "killed": "", "failed": "",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			timeout := 50 * time.Millisecond
			if how == "hog" {
				timeout = 5 * time.Second
			}
			p := faultyPool(t, how)
			policy := start(t, p, regoSource("shop", "p", keepLabeled), sandbox.Limits{Timeout: timeout})
			answer, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil))
			if err == nil || answer.Verdict.Decision != "" {
				t.Fatalf("verdict %v, error %v", answer.Verdict, err)
			}
			fault := new(policies.Fault)
			if errors.As(err, &fault); fault.Kind != want {
				t.Errorf("error %v; want a fault of kind %q", err, want)
			}
			alive := 2 // one compiles; the other lives if it only said nonsense
			if how != "nonsense" && how != "failed" {
				alive = 1
			}
			if stats := p.Stats(); stats.Running[ScopeNamespace] > alive {
				t.Errorf("its end is not counted: %+v", stats)
			}
		})
	}
}

func TestExchange_RejectsUnexpectedReply(t *testing.T) {
	policy := start(t, faultyPool(t, "twice"), regoSource("shop", "p", keepLabeled), sandbox.Limits{})
	for n := range 3 {
		answer, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil))
		if answer.Verdict.Decision == hostabi.DecisionDelete {
			t.Fatalf("call %d was given a verdict of another call (error %v)", n, err)
		}
	}
}

func TestAModuleMayImportOneFunctionAnyNumberOfTimes(t *testing.T) {
	m := &asm.Module{}
	for range 5000 {
		m.Import("gleaner_v1", "request_read", []byte{asm.I32, asm.I32}, []byte{asm.I32})
	}
	m.Memory(1, 1)
	m.Hook("collect")
	compiled, err := newPool(t, Config{}).Compile(t.Context(), wasmSource("", "imports", m))
	if err != nil {
		t.Fatal(err)
	}
	if len(compiled.Imports) != 1 {
		t.Errorf("%d imports", len(compiled.Imports))
	}
}

func TestStart_FailsIfWorkerDoesNotStart(t *testing.T) {
	p := newPool(t, Config{Command: []string{"/proc/self/exe", "faulty-at-once"}})
	if _, err := p.Compile(t.Context(), regoSource("", "a", keepLabeled)); err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("error is %v", err)
	}
	p = newPool(t, Config{Command: []string{"/nonexistent"}})
	if _, err := p.Compile(t.Context(), regoSource("", "a", keepLabeled)); err == nil || !strings.Contains(err.Error(), "nonexistent") {
		t.Errorf("error is %v", err)
	}
}

// skipIfBusy gives up where other processes leave a worker, which gives way to them, too
// little of the processor to tell that its module takes too long.
func skipIfBusy(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "of processor time") {
		t.Skipf("this machine is busy: %v", err)
	}
}

// spin is a loop of n turns, which costs about four units of fuel each.
func spin() []byte { return asm.Forever() }

func TestAModuleThatIsKilledIsQuarantinedAndOthersGoOn(t *testing.T) {
	now := atomic.Int64{}
	clock := func() time.Time { return time.Unix(1_800_000_000+now.Load(), 0) }
	p := newPool(t, Config{Now: clock})
	good := start(t, p, regoSource("shop", "good", keepLabeled), sandbox.Limits{})
	// The most fuel there may be, and a timeout that ends sooner.
	bad := start(t, p, wasmSource("evil", "bad", module(spin())), sandbox.Limits{Fuel: sandbox.MaxFuel, Timeout: 50 * time.Millisecond})

	_, err := bad.EvaluateMetered(t.Context(), collectRequest("evil", nil))
	skipIfBusy(t, err)
	fault := new(policies.Fault)
	if !errors.As(err, &fault) || fault.Kind != policies.FaultTimedOut || !strings.Contains(fault.Message, "not run again before") {
		t.Fatalf("error is %v", err)
	}
	before := p.Stats().Started[ScopeNamespace]
	for range 5 {
		if _, err := bad.EvaluateMetered(t.Context(), collectRequest("evil", nil)); !errors.As(err, &fault) {
			t.Fatalf("in quarantine, error is %v", err)
		}
	}
	if after := p.Stats().Started[ScopeNamespace]; after != before {
		t.Errorf("a module in quarantine was run: %d workers started", after-before)
	}
	if _, err := good.EvaluateMetered(t.Context(), collectRequest("shop", nil)); err != nil {
		t.Errorf("another module: %v", err)
	}
	if q := p.Quarantined(); len(q) != 1 || q[0].Namespace != "evil" || q[0].Cause != CauseTime || !q[0].Until.Equal(clock().Add(firstQuarantine)) {
		t.Errorf("in quarantine: %+v", q)
	}
	now.Add(int64(firstQuarantine / time.Second))
	_, err = bad.EvaluateMetered(t.Context(), collectRequest("evil", nil))
	skipIfBusy(t, err)
	if !errors.As(err, &fault) {
		t.Fatalf("after the quarantine, error is %v", err)
	}
	if q := p.Quarantined(); len(q) != 1 || q[0].Count != 2 || !q[0].Until.Equal(clock().Add(2*firstQuarantine)) {
		t.Errorf("in quarantine the second time: %+v", q)
	}
}

// TestObjectsOfOneTenantDoNotQuarantineAModuleForOthers: a module of the cluster is asked
// about objects that tenants write.
func TestObjectsOfOneTenantDoNotQuarantineAModuleForOthers(t *testing.T) {
	const slowForEvil = `package gleaner
default collect := {"decision": "Abstain"}
collect := {"decision": "Orphan"} if {
	input.object.metadata.namespace == "evil"
	count([x | some i in numbers.range(1, 900); some j in numbers.range(1, 900); some k in numbers.range(1, 900); x := (i * j) + k]) > 0
}`
	p := newPool(t, Config{})
	policy := start(t, p, regoSource("", "shared", slowForEvil), sandbox.Limits{Fuel: sandbox.MaxFuel, Memory: 16 << 20, Timeout: 20 * time.Millisecond})
	if _, err := policy.EvaluateMetered(t.Context(), collectRequest("evil", nil)); err == nil {
		t.Fatal("no error")
	}
	if _, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil)); err != nil {
		t.Errorf("for another namespace: %v", err)
	}
}

func TestCall_EndsWithContext(t *testing.T) {
	policy := start(t, newPool(t, Config{}), wasmSource("evil", "bad", module(spin())), sandbox.Limits{Fuel: sandbox.MaxFuel, Timeout: 300 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := policy.EvaluateMetered(ctx, collectRequest("evil", nil))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
}

func TestANamespaceNeverHasAllWorkers(t *testing.T) {
	p := newPool(t, Config{Workers: 2})
	slow := start(t, p, wasmSource("evil", "slow", module(spin())), sandbox.Limits{Fuel: sandbox.MaxFuel, Timeout: time.Second})
	good := start(t, p, regoSource("shop", "good", keepLabeled), sandbox.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range 20 {
		waiting.Go(func() { _, _ = slow.EvaluateMetered(ctx, collectRequest("evil", nil)) })
	}
	group := p.running[ScopeNamespace]
	for busy := 0; busy == 0; {
		group.lock.Lock()
		busy = group.busy["evil"]
		group.lock.Unlock()
	}
	if _, err := good.EvaluateMetered(t.Context(), collectRequest("shop", nil)); err != nil {
		t.Error(err)
	}
	group.lock.Lock()
	if group.busy["evil"] != 1 {
		t.Errorf("the slow namespace has %d workers", group.busy["evil"])
	}
	group.lock.Unlock()
	cancel()
	waiting.Wait()
}

func TestCall_KilledWorkerGivesNoVerdict(t *testing.T) {
	p := newPool(t, Config{Workers: 1, Now: func() time.Time { return time.Now().Add(time.Hour) }})
	policy := start(t, p, regoSource("shop", "keep", keepLabeled), sandbox.Limits{})
	stop := make(chan struct{})
	var killing sync.WaitGroup
	var spared atomic.Bool // whether no worker is killed now
	killing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
			if spared.Load() {
				continue
			}
			p.starter.lock.Lock()
			for w := range p.starter.running { // also one that has just been started in place of another
				_ = w.cmd.Process.Signal(syscall.SIGKILL)
			}
			p.starter.lock.Unlock()
		}
	})
	good, failed := 0, 0
	for i := 0; i < 300 || good == 0 || failed == 0; i++ {
		spared.Store(i%4 == 3) // on a busy machine a worker needs longer than it is left alive
		answer, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", map[string]string{"keep": "true"}))
		switch {
		case err != nil && answer.Verdict.Decision == "":
			failed++
			p.quarantine.remove(subject{scope: ScopeNamespace, digest: policy.module.Digest, policy: policy.name})
			p.quarantine.remove(subject{scope: ScopeNamespace, digest: policy.module.Digest, policy: policy.name, namespace: "shop"})
		case err == nil && answer.Verdict.Decision == hostabi.DecisionOrphan:
			good++
		default:
			t.Fatalf("verdict %v, error %v", answer.Verdict, err)
		}
	}
	close(stop)
	killing.Wait()
}

// TestCompile_SlowSourceDelaysNoOther: OPA's compiler takes no limits.
func TestCompile_SlowSourceDelaysNoOther(t *testing.T) {
	p := newPool(t, Config{Memory: 192 << 20, CompileTimeout: time.Second})
	bomb := "package gleaner\nx := " + strings.Repeat("1-(", 15_000) + "1" + strings.Repeat(")", 15_000) + "\ncollect := {\"decision\": \"Abstain\"}"
	_, err := p.Compile(t.Context(), regoSource("evil", "bomb", bomb))
	refusal := (*RejectedError)(nil)
	if !errors.As(err, &refusal) {
		t.Fatalf("error is %v", err)
	}
	if _, err := p.Compile(t.Context(), regoSource("shop", "good", keepLabeled)); err != nil {
		t.Errorf("another module: %v", err)
	}
}

func TestAfterClose(t *testing.T) {
	p, err := New(Config{Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	policy := start(t, p, regoSource("shop", "keep", keepLabeled), sandbox.Limits{})
	p.Close()
	if _, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil)); err == nil {
		t.Error("no error")
	}
	if got := p.Stats().Running; got[ScopeCluster]+got[ScopeNamespace] != 0 {
		t.Errorf("workers that run: %v", got)
	}
}

func TestCompiledModulesAreKeptInAFolderOfEachScope(t *testing.T) {
	dir := t.TempDir()
	entries := func(scope string) int {
		found, err := filepath.Glob(filepath.Join(dir, "compiled-"+scope, "wasm", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	p := newPool(t, Config{CacheDir: dir})
	start(t, p, regoSource("shop", "keep", keepLabeled), sandbox.Limits{})
	if entries("namespace") != 1 || entries("cluster") != 0 {
		t.Fatalf("%d modules are kept for namespaces, and %d for the cluster", entries("namespace"), entries("cluster"))
	}
	again := start(t, newPool(t, Config{CacheDir: dir}), regoSource("shop", "keep", keepLabeled), sandbox.Limits{})
	if _, err := again.EvaluateMetered(t.Context(), collectRequest("shop", nil)); err != nil || entries("namespace") != 1 {
		t.Errorf("error %v; %d modules are kept", err, entries("namespace"))
	}
}
