package attacks

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/test/attacks/payload"
)

// What everybody else relies on while somebody attacks.
const (
	healthWithin = time.Second      // a health check is answered
	forceWithin  = 10 * time.Second // a policy of an administrator is in force
	slower       = 2                // times that collection may take in another namespace
	slack        = 500 * time.Millisecond
	heldUp       = 5 * time.Second // that a single collection may take longer

	cascadeTimeout = 20 * time.Second
	healthTimeout  = 5 * time.Second
	between        = 100 * time.Millisecond // checks
	calmCascades   = 9
)

// watchdog checks all of that, from before an attack to its end.
type watchdog struct {
	*world
	limit  int64           // of memory, in bytes
	before []time.Duration // of cascades
	during []time.Duration
	calm   time.Duration // the longest health check before the attack
	within time.Duration // that a health check is to be answered

	stop    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex // covers what follows
	health  time.Duration
	memory  int64
	faults  []string
	counted map[string]int // faults of a kind
}

// newWatchdog measures how the operator is without an attack.
func newWatchdog(w *world) *watchdog {
	w.Helper()
	d := &watchdog{world: w, limit: memoryLimit(w.T), within: healthTimeout, stop: make(chan struct{}), counted: map[string]int{}}
	d.once() // which includes whatever is only made once
	d.running.Go(d.checkHealth)
	for range calmCascades {
		d.before = append(d.before, d.once())
	}
	close(d.stop)
	d.running.Wait()
	d.calm, d.health, d.stop = d.health, 0, make(chan struct{})
	d.within = max(healthWithin, 3*d.calm) // the machine may be busy with something else
	if len(d.faults) > 0 {
		w.Fatalf("before the attack: %s", strings.Join(d.faults, "; "))
	}
	d.running.Go(d.checkHealth)
	d.running.Go(d.checkMemory)
	return d
}

// fault records what was wrong; each kind of fault once.
func (d *watchdog) fault(kind, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counted[kind]++; d.counted[kind] == 1 {
		d.faults = append(d.faults, kind+": "+fmt.Sprintf(format, args...))
	}
}

// checkHealth asks for /healthz, as a kubelet does.
func (d *watchdog) checkHealth() {
	for d.goesOn() {
		began := time.Now()
		err := d.operator.probe("/healthz", healthTimeout)
		took := time.Since(began)
		d.mu.Lock()
		d.health = max(d.health, took)
		d.mu.Unlock()
		select {
		case <-d.stop:
			return // and whatever ended the operator is no fault
		default:
		}
		if !d.operator.alive() {
			d.fault("operator", "it has ended with %s", d.operator.cmd.ProcessState)
			return
		}
		if err != nil || took > d.within {
			d.fault("health", "/healthz took %s, %v", took.Round(time.Millisecond), err)
		}
	}
}

// checkMemory sums up what the operator and its workers hold. It ends them above their
// limit, as the kernel would.
func (d *watchdog) checkMemory() {
	for d.goesOn() {
		bytes, err := residentMemory(d.operator.cmd.Process.Pid)
		if err != nil {
			d.fault("memory", "%v", err)
			return
		}
		d.mu.Lock()
		d.memory = max(d.memory, bytes)
		d.mu.Unlock()
		if bytes > d.limit {
			d.fault("memory", "the operator holds %d MiB, which is over its limit of %d MiB", bytes>>20, d.limit>>20)
			d.operator.kill()
			return
		}
	}
}

// goesOn waits between two checks.
func (d *watchdog) goesOn() bool {
	select {
	case <-d.stop:
		return false
	case <-time.After(between):
		return true
	}
}

// observe checks everything while an attack goes on.
func (d *watchdog) observe() {
	d.Helper()
	d.watch(0) // the least
	d.checkPolicy()
	d.watch(attackLength())
	if *long {
		d.checkPolicy()
	}
}

// watch checks collection until so much time is over, and at least three times.
func (d *watchdog) watch(length time.Duration) {
	d.Helper()
	began := time.Now()
	for n := 0; n < 3 || time.Since(began) < length; n++ {
		took := d.once()
		d.during = append(d.during, took)
		if took >= cascadeTimeout || !d.operator.alive() {
			return // enough is known
		}
	}
}

// once has a dependent of the victim collected, and returns how long that took.
func (d *watchdog) once() time.Duration {
	d.Helper()
	owner := d.configMap(d.admin, d.victim, "owner-", nil)
	dependent := d.configMap(d.admin, d.victim, "dependent-", map[string]string{govern: "yes"}, owner)
	d.delete(d.admin, owner)
	began := time.Now()
	for time.Since(began) < cascadeTimeout {
		live, err := d.live(dependent)
		if err == nil && live == nil {
			return time.Since(began)
		}
		if err != nil {
			d.fault("API server", "%v", err)
		}
		d.pause(10 * time.Millisecond)
	}
	return cascadeTimeout
}

// checkPolicy has an administrator create a policy, and checks that it is in force in
// time, and that an object that it is to keep is kept.
func (d *watchdog) checkPolicy() {
	d.Helper()
	namespace := d.namespace("kept")
	owner := d.configMap(d.admin, namespace, "owner", nil)
	kept := d.configMap(d.admin, namespace, "kept", nil, owner)
	policy := payload.Object("ClusterGCPolicy", "", namespace, map[string]any{
		"resources":         []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: namespace}},
		"fixed":             map[string]any{"collect": map[string]any{"decision": "Orphan"}},
		"mode":              "Enforce",
	})
	began := time.Now()
	d.create(d.admin, policy)
	d.Cleanup(func() {
		if err := d.admin.of(policy).Delete(contextOf(d.T), namespace, metav1.DeleteOptions{}); err != nil {
			d.Error(err)
		}
	})
	if err := d.enforcing(d.admin, policy, forceWithin); err != nil {
		d.fault("policy", "%v", err)
	}
	d.Logf("the policy was in force after %s", time.Since(began).Round(time.Millisecond))
	d.delete(d.admin, owner)
	if err := d.isKept(kept); err != nil {
		d.fault("kept", "%v", err)
	}
}

// isKept waits until an object does not name its owner any more.
func (d *watchdog) isKept(o *corev1.ConfigMap) error {
	for began := time.Now(); time.Since(began) < forceWithin; {
		live, err := d.live(o)
		switch {
		case err != nil:
			return err
		case live == nil:
			return fmt.Errorf("%s was deleted, which a policy was to keep", o.Name)
		case len(live.OwnerReferences) == 0:
			return nil
		}
		d.pause(25 * time.Millisecond)
	}
	return fmt.Errorf("%s is as it was after %s: no policy has been carried out", o.Name, forceWithin)
}

// end ends the operator and reports everything that was wrong.
func (d *watchdog) end() {
	d.Helper()
	close(d.stop)
	d.running.Wait()
	if !d.operator.killed {
		took, err := d.operator.terminate()
		if err != nil {
			d.fault("SIGTERM", "%v", err)
		}
		d.Logf("SIGTERM took %s", took.Round(time.Millisecond))
	}
	before, during := median(d.before), median(d.during)
	if during > slower*before+slack {
		d.fault("collection", "in another namespace it takes %s at the median, and took %s before", during, before)
	}
	if worst := slices.Max(d.during); worst > slices.Max(d.before)+heldUp {
		d.fault("collection of one object", "in another namespace it took %s, and %s before", worst, slices.Max(d.before))
	}
	d.Logf("collection: median %s before, %s during (longest %s, of %d); health: longest %s before, %s during; memory: at most %d MiB",
		round(before), round(during), round(slices.Max(d.during)), len(d.during), round(d.calm), round(d.health), d.memory>>20)
	for _, f := range d.faults {
		d.Error(f)
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
