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

// keepModule is a module that keeps all objects, after some computation.
const keepModule = `package gleaner

collect := {"decision": "Orphan"} if count([1 | some i in numbers.range(1, 1000); i % 7 == 0]) > 0
`

// Worker processes are killed or stopped at any moment during evaluations.
// None of that counts as a verdict: kept objects are kept, and other work continues.
func TestWorkers_ThatFail_DeleteNothing(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		if name == "stopped" && !*long {
			continue
		}
		t.Run(name, func(t *testing.T) {
			forEachMode(t, func(t *testing.T, m mode) { failWorkers(newEnv(t, m), signal) })
		})
	}
}

func failWorkers(w *env, signal syscall.Signal) {
	w.Helper()
	rules := []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}}
	selector := map[string]any{"matchLabels": map[string]any{payload.Label: "kept"}}
	w.create(w.tenant, payload.Object("PolicyModule", w.attacker, "keeping", map[string]any{"rego": map[string]any{"inline": keepModule}}))
	policy := payload.Object("GCPolicy", w.attacker, "keeping", map[string]any{
		"resources": rules, "objectSelector": selector, "mode": "Enforce", "module": map[string]any{"name": "keeping"}, "needs": "Reference",
	})
	w.create(w.tenant, policy)
	if err := w.waitForEnforcing(w.tenant, policy, timeout); err != nil {
		w.Fatal(err)
	}
	w.waitUntilEnforced()
	pid := w.operator.process.PID()
	if workers, err := descendants(pid); err != nil || len(workers) == 0 {
		w.Skipf("the operator has no worker processes (%v)", err)
	}
	d := newWatchdog(w)
	stop, failing := make(chan struct{}), sync.WaitGroup{}
	failed := 0
	failing.Go(func() { failed = failAtRandom(pid, signal, stop) })
	var kept []*corev1.ConfigMap
	for began, n := time.Now(), 0; time.Since(began) < attackLength(); n++ {
		kept = append(kept, w.createOrphan(fmt.Sprintf("kept-%d", n)))
		w.sleep(50 * time.Millisecond)
	}
	d.observe()
	close(stop)
	failing.Wait()
	w.Logf("%d workers failed during decisions on %d objects", failed, len(kept))
	for _, o := range kept {
		w.waitForRelease(o)
	}
	d.finish()
}

// failAtRandom repeatedly sends a signal to a random child of the operator.
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

// createOrphan creates an ownerless object of the attacker that a policy keeps.
func (w *env) createOrphan(name string) *corev1.ConfigMap {
	w.Helper()
	owner := w.createConfigMap(w.tenant, w.attacker, name+"-owner", nil)
	object := w.createConfigMap(w.tenant, w.attacker, name, map[string]string{payload.Label: "kept"}, owner)
	w.delete(w.tenant, owner)
	return object
}

// waitUntilEnforced waits until the policy keeps objects: the API server reads a companion's webhook
// a moment after the policy is in force.
func (w *env) waitUntilEnforced() {
	w.Helper()
	n := 0
	devtest.Eventually(w, timeout, func() error {
		n++
		object := w.createOrphan(fmt.Sprintf("first-%d", n))
		for range 100 {
			live, err := w.get(object)
			switch {
			case err != nil:
				return err
			case live == nil:
				return fmt.Errorf("%s was deleted", object.Name)
			case len(live.OwnerReferences) == 0:
				return nil
			}
			w.sleep(50 * time.Millisecond)
		}
		return fmt.Errorf("%s is unchanged", object.Name)
	})
}

// waitForRelease waits until an object has no owner references. It must not be deleted.
func (w *env) waitForRelease(o *corev1.ConfigMap) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		live, err := w.get(o)
		switch {
		case err != nil:
			return err
		case live == nil:
			w.Fatalf("%s was deleted despite a policy that keeps it", o.Name)
		case len(live.OwnerReferences) != 0:
			return fmt.Errorf("%s still has its owner reference", o.Name)
		}
		return nil
	})
}

// The operator is restarted during an attack.
func TestRestart_DuringAnAttack_ServesOthers(t *testing.T) {
	attacks := []string{"nested-templates"}
	if *long {
		attacks = []string{"nested-templates", "endless-start", "nested-parentheses", "fill-memory", "random-loads"}
	}
	forEachMode(t, func(t *testing.T, m mode) {
		for _, p := range payload.All() {
			if slices.Contains(attacks, p.Name) {
				t.Run(p.Name, func(t *testing.T) { restart(newEnv(t, m), p) })
			}
		}
	})
}

const doneModule = `package gleaner

finalize := {"decision": "Done"}
`

func restart(w *env, p payload.Payload) {
	w.Helper()
	w.createFinalizer(w.admin, w.victim, "done", doneModule)
	if !w.submitPayload(p) {
		w.Skip("the API server refuses the module")
	}
	w.operator.process.Kill()
	object := w.createFinalized(w.admin, w.victim, "finalized", "done")
	began := time.Now()
	w.operator = startOperator(w.T, w.cluster, w.mode)
	w.Logf("ready after %s", round(time.Since(began)))
	devtest.Eventually(w, maxEnforceDelay, func() error {
		live, err := w.get(object)
		if err == nil && live != nil {
			err = fmt.Errorf("%s of another namespace still has its finalizer", object.Name)
		}
		return err
	})
	w.Logf("a finalizer of another namespace was removed after %s", round(time.Since(began)))
	d := newWatchdog(w)
	d.observe()
	d.finish()
}
