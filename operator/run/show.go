package run

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/cascadelog"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/recordlog"
)

// Show returns what the debug endpoints show, except for who may read it.
func (op *Operator) Show() debug.Source {
	v := view{op}
	shown := debug.Source{
		Dump:         op.store.Dump,
		Synced:       op.watcher.Synced,
		Unsynced:     v.unsynced,
		Records:      op.records.Entries,
		RecordsSince: v.recordedSince,
		Status:       v.status,
		Cascades:     v.cascades,
		Queue:        atMostEvery(queueInterval, v.queue),
	}
	if archived := op.ArchiveReader(); archived != nil {
		shown.Stored = recordlog.Reader{Archive: archived}.Entries
	}
	return shown
}

// view reads an Operator for those who show its state.
type view struct{ *Operator }

// recordedSince returns the start of this replica's records: it became the leader then, and
// has evicted no record since. Records of an earlier leader may be lost. It is zero for a
// follower.
func (v view) recordedSince() time.Time {
	led := v.store.LeadingSince()
	if forgotten := v.records.LastEvicted(); !led.IsZero() && forgotten.After(led) {
		return forgotten
	}
	return led
}

// Cascades returns the cascades in progress, and those that this replica has seen complete.
func (op *Operator) Cascades() ([]completion.Cascade, []cascadelog.Completed) {
	return op.cascading.log.Cascades()
}

// Records returns the recorded decisions, of one object if uid is not "".
func (op *Operator) Records(uid types.UID) []record.Entry { return op.records.Entries(uid) }

// ResourceOf returns the resource that serves a kind.
func (op *Operator) ResourceOf(gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	resource, ok := op.watcher.Catalog().Preferred(gvk.GroupKind())
	return resource.Version, ok
}

func (v view) unsynced() []string {
	var lines []string
	for _, s := range v.watcher.Unsynced() {
		v := s.Resource.Version
		line := v.GroupResource().String() + " " + v.Version
		if s.LastError != "" {
			line = fmt.Sprintf("%s: %s", line, s.LastError)
		}
		lines = append(lines, line)
	}
	return lines
}

const (
	maxQueued     = 10              // queued objects that are shown
	queueInterval = 2 * time.Second // between two searches of the queue, which block it, however many clients read it
)

// atMostEvery returns a function that calls another one if the last call was longer ago than an interval, and else returns its
// result again.
func atMostEvery[T any](interval time.Duration, read func() T) func() T {
	var (
		mu   sync.Mutex // covers what follows
		last T
		at   time.Time
	)
	return func() T {
		mu.Lock()
		defer mu.Unlock()
		if at.IsZero() || time.Since(at) >= interval {
			last, at = read(), time.Now()
		}
		return last
	}
}

func (v view) queue() debug.Queue {
	q := debug.Queue{Length: v.store.PendingCount()}
	for _, o := range v.store.OldestQueued(maxQueued) {
		q.Oldest = append(q.Oldest, debug.Queued{Object: record.ObjectOf(o.Object), Since: o.Since, Reconciling: o.Reconciling})
	}
	return q
}

func (v view) status() debug.Status {
	status := v.collecting()
	status.Paused = v.pauses()
	status.Leading, status.Collector, status.Version = v.store.IsLeading(), "primary", v.options.Version
	if v.options.Companion {
		status.Collector, status.CollectorUser = "companion", v.companion.CollectorUser()
	}
	for _, pair := range v.store.EquivalentKinds() {
		status.EquivalentResources = append(status.EquivalentResources, fmt.Sprintf("%s and %s show the same objects: name the resource of one in --ignore-resources",
			pair.First, pair.Second))
	}
	return status
}

func (v view) collecting() debug.Status {
	switch v.gate.State().Probe {
	case gate.Open:
		if v.options.DryRun {
			return debug.Status{Message: "dry run: decisions are recorded and nothing is written"}
		}
		switch {
		case v.options.Companion && v.companion.Presence() == companion.Missing:
			return debug.Status{Message: "no other garbage collector is running, so what no policy governs is not collected: " + canary.CompanionAdvice}
		case v.options.Companion && v.companion.Mismatch() != nil:
			return debug.Status{Message: v.companion.Mismatch().Error()}
		case v.options.Companion && v.companion.Presence() == "":
			return debug.Status{Collecting: true, Message: "doing what policies and finalizers ask for; whether another collector is running is not known yet"}
		case v.options.Companion:
			return debug.Status{Collecting: true, Message: "doing what policies and finalizers ask for, in addition to the built-in garbage collector"}
		}
		return debug.Status{Collecting: true, Message: "collecting"}
	case gate.Shut:
		return debug.Status{Message: "another garbage collector is running, so nothing is written: " + canary.Advice}
	default:
		return debug.Status{Message: "not leading, or still finding out whether another garbage collector is running"}
	}
}

// HasUID reports whether the graph has a node of this UID (G-78).
func (op *Operator) HasUID(uid types.UID) bool { return op.store.Has(uid) }

// Pending returns how many objects are queued or being reconciled.
func (op *Operator) Pending() int { return op.store.PendingCount() }

// heldByPlace counts the objects with a hold.
func (v view) heldByPlace() map[policystatus.Place]int {
	counts, types := map[policystatus.Place]int{}, v.types()
	v.store.EachHeld(func(kind schema.GroupKind, namespace string) {
		if r, ok := types.Preferred(kind); ok {
			counts[policystatus.Place{Resource: r.Version.GroupResource(), Namespace: namespace}]++
		}
	})
	return counts
}

// serves reports whether discovery has seen a resource, and whether its objects are in
// namespaces.
func (v view) serves(r schema.GroupResource) (served, namespaced bool) {
	all := v.types().Collected()
	i := slices.IndexFunc(all, func(t catalog.Resource) bool { return t.Version.GroupResource() == r })
	return i >= 0, i >= 0 && all[i].Namespaced
}

// servesKind reports whether discovery has seen a kind.
func (v view) servesKind(kind schema.GroupKind) bool {
	_, served := v.types().Preferred(kind)
	return served
}

// kindOf returns the kind of a resource, if discovery has seen it.
func (v view) kindOf(r schema.GroupResource) (schema.GroupKind, bool) {
	for _, t := range v.types().Collected() {
		if t.Version.GroupResource() == r {
			return t.GroupKind(), true
		}
	}
	return schema.GroupKind{}, false
}

// versionOf returns the preferred version of a resource; "" if discovery has not seen it.
func (v view) versionOf(r schema.GroupResource) string {
	for _, t := range v.types().Collected() {
		if t.Version.GroupResource() == r {
			return t.Version.Version
		}
	}
	return ""
}

// progress returns the progress of a finalizer.
func (v view) progress(uid types.UID) policystatus.Progress {
	p := v.finalizers.Progress(uid)
	to := policystatus.Progress{Pending: p.Pending, Released: p.Released, Carriers: p.WithFinalizer, Counted: p.Counted}
	for _, s := range p.Stuck {
		apiVersion, kind := s.Object.Kind.ToAPIVersionAndKind()
		to.Stalled = append(to.Stalled, v1alpha1.StalledObject{
			APIVersion: apiVersion, Kind: kind, Namespace: s.Object.Namespace, Name: s.Object.Name, UID: string(s.Object.UID),
			Reason: s.Reason, Message: s.Message, Attempts: int32(min(s.Attempts, math.MaxInt32)), SinceTime: metav1.NewTime(s.Since).Rfc3339Copy(),
			NextRetryTime: timeOf(s.NextRetry), DeadlineTime: timeOf(s.Deadline),
		})
	}
	return to
}

// timeOf returns a time for a status; nil if it is zero.
func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t).Rfc3339Copy()
	return &at
}
