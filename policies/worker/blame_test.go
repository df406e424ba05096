package worker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
	"github.com/gleaner-dev/gleaner/policies/worker/confine"
)

// TestClusterScopedObjectDoesNotQuarantineAModuleForOthers: tenants may write some objects
// without a namespace, such as their own Namespaces.
func TestClusterScopedObjectDoesNotQuarantineAModuleForOthers(t *testing.T) {
	const slowIfLabeled = `package gleaner
default collect := {"decision": "Abstain"}
collect := {"decision": "Orphan"} if {
	input.object.metadata.labels.slow == "true"
	count([x | some i in numbers.range(1, 900); some j in numbers.range(1, 900); some k in numbers.range(1, 900); x := (i * j) + k]) > 0
}`
	p := newPool(t, Config{})
	policy := start(t, p, regoSource("", "shared", slowIfLabeled), sandbox.Limits{Fuel: sandbox.MaxFuel, Memory: 16 << 20, Timeout: 20 * time.Millisecond})
	slow := map[string]string{"slow": "true"}
	if _, err := policy.EvaluateMetered(t.Context(), collectRequest("", slow)); err == nil {
		t.Fatal("no error")
	}
	if _, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil)); err != nil {
		t.Errorf("for an object in a namespace: %v", err)
	}
	if q := p.Quarantined(); len(q) > 1 || len(q) == 1 && (q[0].AllObjects || q[0].Namespace != "") {
		t.Errorf("in quarantine: %+v; want only cluster-scoped objects", q)
	}
}

// TestCall_RetriesInNewWorker: a worker that has run a module of one
// tenant, and so holds its memory, ends or is ended while it runs that of another.
func TestCall_RetriesInNewWorker(t *testing.T) {
	for _, how := range []string{"exits", "hog", "killed", "closes", "garbage", "hang"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			p := faultyPool(t, "later-"+how)
			limits := sandbox.Limits{Timeout: 200 * time.Millisecond}
			evil := start(t, p, regoSource("evil", "evil", keepLabeled), limits)
			good := start(t, p, regoSource("shop", "good", keepLabeled), limits)
			if _, err := evil.EvaluateMetered(t.Context(), collectRequest("evil", nil)); err != nil {
				t.Fatal(err)
			}
			answer, err := good.EvaluateMetered(t.Context(), collectRequest("shop", nil))
			if err != nil || answer.Verdict.Decision != hostabi.DecisionAbstain {
				t.Errorf("verdict %v, error %v", answer.Verdict, err)
			}
			if q := p.Quarantined(); len(q) != 0 {
				t.Errorf("in quarantine: %+v", q)
			}
		})
	}
}

func TestNewLimitsEndAQuarantine(t *testing.T) {
	p := newPool(t, Config{})
	m, err := p.Compile(t.Context(), wasmSource("shop", "slow", module(spin())))
	if err != nil {
		t.Fatal(err)
	}
	options := StartOptions{Name: "GCPolicy shop/slow", Namespace: "shop", Limits: sandbox.Limits{Fuel: sandbox.MaxFuel, Timeout: 20 * time.Millisecond}}
	policy, err := m.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	fault := new(policies.Fault)
	_, err = policy.EvaluateMetered(t.Context(), collectRequest("shop", nil))
	skipIfBusy(t, err)
	if !errors.As(err, &fault) || fault.Kind != policies.FaultTimedOut {
		t.Fatalf("error is %v", err)
	}
	options.Limits = sandbox.Limits{Fuel: 100_000}
	if policy, err = m.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	if q := p.Quarantined(); len(q) != 0 {
		t.Errorf("with new limits, in quarantine: %+v", q)
	}
	if _, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil)); !errors.As(err, &fault) || fault.Kind != policies.FaultFuelExhausted {
		t.Errorf("with new limits, error is %v; want that they are exhausted", err)
	}
}

// TestWatch_SuspendedMachineIsNoFault: a virtual machine that is paused, or a
// container that is frozen, goes on with a clock that is ahead.
func TestWatch_SuspendedMachineIsNoFault(t *testing.T) {
	p := faultyPool(t, "hang")
	w, err := p.running[ScopeCluster].acquire(t.Context(), "shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.calls.Done()
	defer p.running[ScopeCluster].release(w, "shop", 0)
	w.watch.timer = time.NewTimer(time.Hour) // the test looks itself
	look := func(stood time.Duration) *exitError {
		w.watch.begin(w, bounds{cpuTime: 2 * time.Second, memory: 1 << 40})
		defer w.watch.end()
		w.watch.began = time.Now().Add(-stood)
		w.watch.check(w)
		return w.killed.Load()
	}
	if death := look(3 * time.Second); death != nil {
		t.Errorf("after 3s it is ended: %+v", death)
	}
	if death := look(time.Minute); death == nil || death.cause.causedByModule() {
		t.Errorf("after a minute: %+v", death)
	}
}

// TestWatch_BusyMachineIsNoFault: a worker sees only the clock.
func TestWatch_BusyMachineIsNoFault(t *testing.T) {
	for how, want := range map[string]policies.FaultKind{"late": "", "late-busy": policies.FaultTimedOut} {
		policy := start(t, faultyPool(t, how), regoSource("shop", "p", keepLabeled), sandbox.Limits{Timeout: 400 * time.Millisecond})
		_, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil))
		if how == "late-busy" {
			skipIfBusy(t, err)
		}
		fault := new(policies.Fault)
		if errors.As(err, &fault); err == nil || fault.Kind != want {
			t.Errorf("%s: error %v; want a fault of kind %q", how, err, want)
		}
	}
}

// TestACompilerThatSomethingElseKilledIsNotTheModulesFault: the kernel does when memory runs
// out, and a machine that is busy makes it slow.
func TestACompilerThatSomethingElseKilledIsNotTheModulesFault(t *testing.T) {
	for how, blamed := range map[string]bool{"compiler-killed": false, "compiler-closes": false, "compiler-exits": true} {
		p := faultyPool(t, how)
		for range 2 { // the second time it is in quarantine
			_, err := p.Compile(t.Context(), regoSource("shop", "p", keepLabeled))
			if refusal := (*RejectedError)(nil); err == nil || errors.As(err, &refusal) != blamed {
				t.Errorf("%s: error %T: %v", how, err, err)
			}
		}
	}
}

// TestALateFirstLookCountsNoProcessorTime: if the operator did not run, what its worker used
// meanwhile is not known.
func TestALateFirstLookCountsNoProcessorTime(t *testing.T) {
	if !usageKnown {
		t.Skip("this system does not tell what a process uses")
	}
	p := faultyPool(t, "hang")
	w, err := p.running[ScopeCluster].acquire(t.Context(), "shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.calls.Done()
	defer p.running[ScopeCluster].release(w, "shop", 0)
	w.watch.timer = time.NewTimer(time.Hour) // the test looks itself
	own := w.pid
	for w.pid = os.Getpid(); ; { // which has used some processor time, for other things
		if _, cpu, ok := usage(w.pid); !ok || cpu > 300*time.Millisecond {
			break
		}
	}
	w.watch.begin(w, bounds{cpuTime: 60 * time.Millisecond, memory: 1 << 40})
	w.watch.began = time.Now().Add(-200 * time.Millisecond)
	w.watch.check(w)
	w.watch.end()
	w.pid = own
	if death := w.killed.Load(); death != nil && death.cause.causedByModule() {
		t.Errorf("the module is blamed: %+v", death)
	}
}

func TestCloseEndsCallsThatAreBeingMade(t *testing.T) {
	p, err := New(Config{Command: []string{"/proc/self/exe", "faulty-hang"}, Workers: 1, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	policy := start(t, p, regoSource("shop", "p", keepLabeled), sandbox.Limits{Timeout: sandbox.MaxTimeout})
	asked := make(chan error, 1)
	go func() {
		_, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil))
		asked <- err
	}()
	for group, busy := p.running[ScopeNamespace], 0; busy == 0; {
		group.lock.Lock()
		busy = group.busy["shop"]
		group.lock.Unlock()
	}
	p.Close() // if it waited for the call, that would end as one that takes too long
	if err := <-asked; !errors.Is(err, errClosed) {
		t.Errorf("the call: %v", err)
	}
	if q := p.Quarantined(); len(q) != 0 {
		t.Errorf("in quarantine: %+v", q)
	}
}

// TestNoWorkerStartsAfterClose: a call may have been given room to start one just before.
func TestNoWorkerStartsAfterClose(t *testing.T) {
	p, err := New(Config{Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if _, err := p.running[ScopeCluster].start(); !errors.Is(err, errClosed) {
		t.Errorf("error is %v", err)
	}
}

// TestWorkersThatDoNotStartAreNotTriedAtOnceAgain, nor is what failed taken for a lack of
// namespaces.
func TestWorkersThatDoNotStartAreNotTriedAtOnceAgain(t *testing.T) {
	now := atomic.Int64{}
	program := filepath.Join(t.TempDir(), "worker")
	p := newPool(t, Config{Command: []string{program, "sandbox"}, Now: func() time.Time { return time.Unix(1_800_000_000+now.Load(), 0) }})
	g := p.running[ScopeCluster]
	if _, err := g.start(); err == nil {
		t.Fatal("no error")
	}
	if err := os.Symlink(executable(), program); err != nil {
		t.Fatal(err)
	}
	if w, err := g.start(); err == nil {
		w.end(&exitError{CauseClosed, ""})
		t.Fatal("it was tried again at once")
	}
	now.Add(int64(firstRestart / time.Second))
	w, err := g.start()
	if err != nil {
		t.Fatal(err)
	}
	w.end(&exitError{CauseClosed, ""})
	usual, err := newPool(t, Config{}).running[ScopeCluster].start()
	if err != nil {
		t.Fatal(err)
	}
	usual.end(&exitError{CauseClosed, ""})
	if has, had := slices.Contains(w.active, confine.Namespaces), slices.Contains(usual.active, confine.Namespaces); has != had {
		t.Errorf("after a failure its restrictions are %v, and otherwise %v", w.active, usual.active)
	}
}

func TestLargeFramesAreNotKept(t *testing.T) {
	p := faultyPool(t, "abstain")
	source := regoSource("shop", "large", keepLabeled)
	source.Files = append(source.Files, File{Name: "large.rego", Data: make([]byte, 8<<20)})
	if _, err := p.Compile(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	w, err := p.compiling[ScopeNamespace].acquire(t.Context(), "shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.calls.Done()
	defer p.compiling[ScopeNamespace].release(w, "shop", 0)
	if kept := w.in.Memory() + cap(w.out); kept > 2*keepBuffer {
		t.Errorf("%d bytes are kept", kept)
	}
}
