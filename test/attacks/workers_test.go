package attacks

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/attacks/payload"
)

// keeping is a module that keeps everything, after some work.
const keeping = `package gleaner

collect := {"decision": "Orphan"} if count([1 | some i in numbers.range(1, 1000); i % 7 == 0]) > 0
`

// Worker processes end, or stop, at any moment while policies are evaluated in them.
// None of that is ever a verdict: what a policy keeps is kept, and the rest goes on.
func TestWorkers_ThatFailDeleteNothing(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		if name == "stopped" && !*long {
			continue
		}
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, m mode) { failWorkers(newWorld(t, m), signal) })
		})
	}
}

func failWorkers(w *world, signal syscall.Signal) {
	w.Helper()
	rules := []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}}
	selector := map[string]any{"matchLabels": map[string]any{payload.Label: "kept"}}
	w.create(w.tenant, payload.Object("PolicyModule", w.attacker, "keeping", map[string]any{"rego": map[string]any{"inline": keeping}}))
	policy := payload.Object("GCPolicy", w.attacker, "keeping", map[string]any{
		"resources": rules, "objectSelector": selector, "mode": "Enforce", "module": map[string]any{"name": "keeping"}, "needs": "Reference",
	})
	w.create(w.tenant, policy)
	if err := w.enforcing(w.tenant, policy, timeout); err != nil {
		w.Fatal(err)
	}
	w.keptOnce()
	pid := w.operator.cmd.Process.Pid
	if workers, err := descendants(pid); err != nil || len(workers) == 0 {
		w.Skipf("the operator has no worker processes, so that there are none to fail (%v)", err)
	}
	d := newWatchdog(w)
	stop, failing := make(chan struct{}), sync.WaitGroup{}
	failed := 0
	failing.Go(func() { failed = failAtRandom(pid, signal, stop) })
	var kept []*corev1.ConfigMap
	for began, n := time.Now(), 0; time.Since(began) < attackLength(); n++ {
		kept = append(kept, w.orphaned(fmt.Sprintf("kept-%d", n)))
		w.pause(50 * time.Millisecond)
	}
	d.observe()
	close(stop)
	failing.Wait()
	w.Logf("%d workers failed while %d objects were decided on", failed, len(kept))
	for _, o := range kept {
		w.isReleased(o)
	}
	d.end()
}

// failAtRandom sends a signal to a random one of the operator's children again and again.
func failAtRandom(pid int, signal syscall.Signal, stop chan struct{}) (failed int) {
	for {
		select {
		case <-stop:
			return failed
		case <-time.After(time.Duration(rand.IntN(200)) * time.Millisecond):
		}
		workers, err := descendants(pid)
		if err != nil || len(workers) == 0 {
			continue
		}
		if process, err := os.FindProcess(workers[rand.IntN(len(workers))]); err == nil && process.Signal(signal) == nil {
			failed++
		}
	}
}

// orphaned creates an object of the attacker's that a policy is to keep, without an owner.
func (w *world) orphaned(name string) *corev1.ConfigMap {
	w.Helper()
	owner := w.configMap(w.tenant, w.attacker, name+"-owner", nil)
	object := w.configMap(w.tenant, w.attacker, name, map[string]string{payload.Label: "kept"}, owner)
	w.delete(w.tenant, owner)
	return object
}

// keptOnce waits until the policy keeps objects: a companion's webhook is known to the
// API server a moment after the policy is in force.
func (w *world) keptOnce() {
	w.Helper()
	n := 0
	devtest.Eventually(w, timeout, func() error {
		n++
		object := w.orphaned(fmt.Sprintf("first-%d", n))
		for range 100 {
			live, err := w.live(object)
			switch {
			case err != nil:
				return err
			case live == nil:
				return fmt.Errorf("%s was deleted", object.Name)
			case len(live.OwnerReferences) == 0:
				return nil
			}
			w.pause(50 * time.Millisecond)
		}
		return fmt.Errorf("%s is as it was", object.Name)
	})
}

// isReleased waits until an object names no owner any more. It must not be deleted.
func (w *world) isReleased(o *corev1.ConfigMap) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		live, err := w.live(o)
		switch {
		case err != nil:
			return err
		case live == nil:
			w.Fatalf("%s was deleted, which a policy keeps", o.Name)
		case len(live.OwnerReferences) != 0:
			return fmt.Errorf("%s still names its owner", o.Name)
		}
		return nil
	})
}

// What is attacked is started again: the attack is there when it begins.
func TestRestart_DuringAnAttackServesEverybodyElse(t *testing.T) {
	attacks := []string{"nested-templates"}
	if *long {
		attacks = []string{"nested-templates", "endless-start", "nested-parentheses", "fill-memory", "random-loads"}
	}
	each(t, func(t *testing.T, m mode) {
		for _, p := range payload.All() {
			if slices.Contains(attacks, p.Name) {
				t.Run(p.Name, func(t *testing.T) { restart(newWorld(t, m), p) })
			}
		}
	})
}

const done = `package gleaner

finalize := {"decision": "Done"}
`

func restart(w *world, p payload.Payload) {
	w.Helper()
	w.finalizer(w.admin, w.victim, "done", done)
	if !w.submit(p) {
		w.Skip("the API server does not take the module")
	}
	w.operator.kill()
	object := w.finalized(w.admin, w.victim, "finalized", "done")
	began := time.Now()
	w.operator = startOperator(w.T, w.cluster, w.mode)
	w.Logf("it was ready after %s", round(time.Since(began)))
	devtest.Eventually(w, forceWithin, func() error {
		live, err := w.live(object)
		if err == nil && live != nil {
			err = fmt.Errorf("%s of another namespace still has its finalizer", object.Name)
		}
		return err
	})
	w.Logf("a finalizer of another namespace was served after %s", round(time.Since(began)))
	d := newWatchdog(w)
	d.observe()
	d.end()
}
