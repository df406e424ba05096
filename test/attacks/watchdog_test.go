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

// Limits on the effects of an attack on others.
const (
	maxHealthDelay  = time.Second      // for a health check to succeed
	maxEnforceDelay = 10 * time.Second // for an administrator's policy to take effect
	maxSlowdown     = 2                // maximum factor of the median collection time in another namespace
	slack           = 500 * time.Millisecond
	maxExtraDelay   = 5 * time.Second // maximum additional time of a single collection

	cascadeTimeout = 20 * time.Second
	healthTimeout  = 5 * time.Second
	checkInterval  = 100 * time.Millisecond // interval of checks
	calmCascades   = 9
)

// watchdog checks these limits from before an attack to its end.
type watchdog struct {
	*env
	limit           int64           // of memory, in bytes
	before          []time.Duration // times of cascades
	during          []time.Duration
	maxHealthBefore time.Duration // the longest health check before the attack
	healthLimit     time.Duration // limit for a health check

	stop    chan struct{}
	running sync.WaitGroup

	mu          sync.Mutex // covers the fields below
	health      time.Duration
	memory      int64
	faults      []string
	faultCounts map[string]int // faults by kind
}

// newWatchdog measures the operator without an attack.
func newWatchdog(w *env) *watchdog {
	w.Helper()
	d := &watchdog{env: w, limit: memoryLimit(w.T), healthLimit: healthTimeout, stop: make(chan struct{}), faultCounts: map[string]int{}}
	d.measureCascade() // not measured: includes one-time initialization
	d.running.Go(d.checkHealth)
	for range calmCascades {
		d.before = append(d.before, d.measureCascade())
	}
	close(d.stop)
	d.running.Wait()
	d.maxHealthBefore, d.health, d.stop = d.health, 0, make(chan struct{})
	d.healthLimit = max(maxHealthDelay, 3*d.maxHealthBefore) // the machine may be busy
	if len(d.faults) > 0 {
		w.Fatalf("before the attack: %s", strings.Join(d.faults, "; "))
	}
	d.running.Go(d.checkHealth)
	d.running.Go(d.checkMemory)
	return d
}

// fault records a fault; each kind only once.
func (d *watchdog) fault(kind, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.faultCounts[kind]++; d.faultCounts[kind] == 1 {
		d.faults = append(d.faults, kind+": "+fmt.Sprintf(format, args...))
	}
}

// checkHealth requests /healthz, as a kubelet does.
func (d *watchdog) checkHealth() {
	for d.wait() {
		began := time.Now()
		err := d.operator.probe("/healthz", healthTimeout)
		took := time.Since(began)
		d.mu.Lock()
		d.health = max(d.health, took)
		d.mu.Unlock()
		select {
		case <-d.stop:
			return // the operator was killed by the test
		default:
		}
		if err := d.operator.process.Ended(); err != nil {
			d.fault("operator", "%v", err)
			return
		}
		if err != nil || took > d.healthLimit {
			d.fault("health", "/healthz took %s, %v", took.Round(time.Millisecond), err)
		}
	}
}

// checkMemory adds up the memory of the operator and its workers, and kills them above
// the limit, as the kernel would.
func (d *watchdog) checkMemory() {
	for d.wait() {
		bytes, err := residentMemory(d.operator.process.PID())
		if err != nil {
			d.fault("memory", "%v", err)
			return
		}
		d.mu.Lock()
		d.memory = max(d.memory, bytes)
		d.mu.Unlock()
		if bytes > d.limit {
			d.fault("memory", "the operator uses %d MiB, more than its limit of %d MiB", bytes>>20, d.limit>>20)
			d.operator.process.Kill()
			return
		}
	}
}

// wait waits between two checks.
func (d *watchdog) wait() bool {
	select {
	case <-d.stop:
		return false
	case <-time.After(checkInterval):
		return true
	}
}

// observe checks everything during an attack.
func (d *watchdog) observe() {
	d.Helper()
	d.checkCollection(0) // the minimum
	d.checkPolicy()
	d.checkCollection(attackLength())
	if *long {
		d.checkPolicy()
	}
}

// checkCollection checks collection for a time, and at least three times.
func (d *watchdog) checkCollection(length time.Duration) {
	d.Helper()
	began := time.Now()
	for n := 0; n < 3 || time.Since(began) < length; n++ {
		took := d.measureCascade()
		d.during = append(d.during, took)
		if took >= cascadeTimeout || !d.operator.process.IsRunning() {
			return // enough samples
		}
	}
}

// measureCascade waits until a dependent of the victim is collected, and returns how long it took.
func (d *watchdog) measureCascade() time.Duration {
	d.Helper()
	owner := d.createConfigMap(d.admin, d.victim, "owner-", nil)
	dependent := d.createConfigMap(d.admin, d.victim, "dependent-", map[string]string{govern: "yes"}, owner)
	d.delete(d.admin, owner)
	began := time.Now()
	for time.Since(began) < cascadeTimeout {
		live, err := d.get(dependent)
		if err == nil && live == nil {
			return time.Since(began)
		}
		if err != nil {
			d.fault("API server", "%v", err)
		}
		d.sleep(10 * time.Millisecond)
	}
	return cascadeTimeout
}

// checkPolicy creates a policy as an administrator, and checks that it takes effect in
// time and keeps an object.
func (d *watchdog) checkPolicy() {
	d.Helper()
	namespace := d.namespace("kept")
	owner := d.createConfigMap(d.admin, namespace, "owner", nil)
	kept := d.createConfigMap(d.admin, namespace, "kept", nil, owner)
	policy := payload.Object("ClusterGCPolicy", "", namespace, map[string]any{
		"resources":         []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: namespace}},
		"fixed":             map[string]any{"collect": map[string]any{"decision": "Orphan"}},
		"mode":              "Enforce",
	})
	began := time.Now()
	d.create(d.admin, policy)
	d.Cleanup(func() {
		if err := d.admin.resource(policy).Delete(cleanupContext(d.T), namespace, metav1.DeleteOptions{}); err != nil {
			d.Error(err)
		}
	})
	if err := d.waitForEnforcing(d.admin, policy, maxEnforceDelay); err != nil {
		d.fault("policy", "%v", err)
	}
	d.Logf("the policy was in force after %s", time.Since(began).Round(time.Millisecond))
	d.delete(d.admin, owner)
	if err := d.waitForKept(kept); err != nil {
		d.fault("kept", "%v", err)
	}
}

// waitForKept waits until an object has no owner references.
func (d *watchdog) waitForKept(o *corev1.ConfigMap) error {
	for began := time.Now(); time.Since(began) < maxEnforceDelay; {
		live, err := d.get(o)
		switch {
		case err != nil:
			return err
		case live == nil:
			return fmt.Errorf("%s was deleted despite a policy that keeps it", o.Name)
		case len(live.OwnerReferences) == 0:
			return nil
		}
		d.sleep(25 * time.Millisecond)
	}
	return fmt.Errorf("%s is unchanged after %s: no policy was enforced", o.Name, maxEnforceDelay)
}

// finish stops the operator and reports all faults.
func (d *watchdog) finish() {
	d.Helper()
	close(d.stop)
	d.running.Wait()
	if !d.operator.process.IsKilled() {
		took, err := d.operator.terminate()
		if err != nil {
			d.fault("SIGTERM", "%v", err)
		}
		d.Logf("SIGTERM took %s", took.Round(time.Millisecond))
	}
	before, during := median(d.before), median(d.during)
	if during > maxSlowdown*before+slack {
		d.fault("collection", "median in another namespace is %s, was %s before", during, before)
	}
	if worst := slices.Max(d.during); worst > slices.Max(d.before)+maxExtraDelay {
		d.fault("collection of one object", "longest in another namespace is %s, was %s before", worst, slices.Max(d.before))
	}
	d.Logf("collection: median %s before, %s during (longest %s, of %d); health: longest %s before, %s during; memory: at most %d MiB",
		round(before), round(during), round(slices.Max(d.during)), len(d.during), round(d.maxHealthBefore), round(d.health), d.memory>>20)
	for _, f := range d.faults {
		d.Error(f)
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
