package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// signal sends a signal to all workers that run or are being started, and returns how many.
func signal(p *Pool, s syscall.Signal) (sent int) {
	p.starter.lock.Lock()
	defer p.starter.lock.Unlock()
	for w := range p.starter.running {
		if w.cmd.Process.Signal(s) == nil {
			sent++
		}
	}
	return sent
}

// awaitStop waits until no thread of any worker runs. On a busy machine one may still answer
// a request after the signal.
func awaitStop(t *testing.T, p *Pool) {
	t.Helper()
	p.starter.lock.Lock()
	defer p.starter.lock.Unlock()
	for w := range p.starter.running {
		for w.killed.Load() == nil && !allStopped(w.pid) { // one that compiles may be retired meanwhile
			select {
			case <-t.Context().Done():
				t.Fatal("the workers do not stop")
			case <-time.After(time.Millisecond): // they need the processor to stop
			}
		}
	}
}

func allStopped(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil || !isStopped(id) {
			return false
		}
	}
	return true
}

func TestStart_ThatHangsHoldsNoCallerBeyondItsContext(t *testing.T) {
	p := faultyPool(t, "silent")
	for range 3 { // the worker that the first has left to start is waited for by the others
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := p.Compile(ctx, regoSource("shop", "keep", keepLabeled))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) { // and not the error of a start that took too long
			t.Fatalf("error is %v", err)
		}
		if sent := signal(p, 0); sent != 1 {
			t.Errorf("%d workers are being started, want the one that hangs", sent)
		}
	}
}

func TestStart_ThatItsCallerHasLeftServesTheNextCall(t *testing.T) {
	p := newPool(t, Config{})
	g := p.running[ScopeNamespace]
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("left")
	cancel(left)
	for range 2 { // of those that may be started
		g.lock.Lock()
		g.busy["shop"], g.started = g.busy["shop"]+1, g.started+1 // as dispatch does
		g.lock.Unlock()
		if _, err := g.begin(ctx, "shop"); !errors.Is(err, left) {
			t.Fatalf("error is %v", err)
		}
	}
	policy := start(t, p, regoSource("shop", "keep", keepLabeled), sandbox.Limits{})
	answer, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", nil))
	if err != nil || answer.Verdict.Decision != hostabi.DecisionAbstain {
		t.Errorf("verdict %v, error %v", answer.Verdict, err)
	}
	if started := p.Stats().Started[ScopeNamespace]; started > 3 {
		t.Errorf("%d workers were started; want 2 and one to compile", started)
	}
}

// TestStart_OfAWorkerThatIsStoppedEndsSoon: nothing else would end it before it has taken
// as long as a start may on the slowest machine.
func TestStart_OfAWorkerThatIsStoppedEndsSoon(t *testing.T) {
	p := faultyPool(t, "silent")
	var failed error
	var compiling sync.WaitGroup
	compiling.Go(func() { _, failed = p.Compile(t.Context(), regoSource("shop", "keep", keepLabeled)) })
	for signal(p, syscall.SIGSTOP) == 0 {
		select {
		case <-t.Context().Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
	compiling.Wait()
	if failed == nil || !strings.Contains(failed.Error(), "stopped by a signal") {
		t.Errorf("error is %v", failed)
	}
}

func TestStart_MayTakeLongerAfterEachAttemptThatFailed(t *testing.T) {
	var got []time.Duration
	for _, times := range []int{0, 1, 2, 3, 100} {
		got = append(got, failure{times: times}.within())
	}
	want := []time.Duration{firstStart, 2 * firstStart, 4 * firstStart, maxStart, maxStart}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("a start may take %v; want %v", got, want)
		}
	}
}

// TestAWorkerThatIsStoppedIsReplaced: the worker is ended because it stands still, not because
// the module has taken too long.
func TestAWorkerThatIsStoppedIsReplaced(t *testing.T) {
	p := newPool(t, Config{})
	policy := start(t, p, regoSource("shop", "keep", keepLabeled), sandbox.Limits{Timeout: sandbox.MaxTimeout})
	if signal(p, syscall.SIGSTOP) == 0 {
		t.Fatal("no worker runs")
	}
	awaitStop(t, p)
	p.starter.lock.Lock()
	stopped := slices.Collect(maps.Keys(p.starter.running))
	p.starter.lock.Unlock()
	answer, err := policy.EvaluateMetered(t.Context(), collectRequest("shop", map[string]string{"keep": "true"}))
	if err != nil || answer.Verdict.Decision != hostabi.DecisionOrphan {
		t.Errorf("verdict %v, error %v", answer.Verdict, err)
	}
	if ended := p.Stats().Ended[ScopeNamespace]; ended[CauseStalled] != 1 {
		t.Errorf("workers ended by cause: %v", ended)
	}
	if !slices.ContainsFunc(stopped, func(w *process) bool {
		end := w.killed.Load()
		return end != nil && strings.Contains(end.detail, "stopped by a signal")
	}) {
		t.Error("the worker was not ended because it was stopped")
	}
}
