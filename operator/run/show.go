package run

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Show returns what the debug endpoints show, except for who may read it.
func (op *Operator) Show() debug.Source {
	return debug.Source{
		Dump:         op.store.Dump,
		Synced:       op.watcher.Synced,
		Unsynced:     op.unsynced,
		Records:      op.records.Entries,
		RecordsSince: op.recordedSince,
		Status:       op.status,
	}
}

// recordedSince returns the start of this replica's records: it became the leader then, and
// has evicted no record since. Records of an earlier leader may be lost. It is zero for a
// follower.
func (op *Operator) recordedSince() time.Time {
	led := op.store.LeadingSince()
	if forgotten := op.records.LastEvicted(); !led.IsZero() && forgotten.After(led) {
		return forgotten
	}
	return led
}

// Records returns the recorded decisions, of one object if uid is not "".
func (op *Operator) Records(uid types.UID) []record.Entry { return op.records.Entries(uid) }

// ResourceOf returns the resource that serves a kind.
func (op *Operator) ResourceOf(gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	resource, ok := op.watcher.Catalog().Preferred(gvk.GroupKind())
	return resource.Version, ok
}

func (op *Operator) unsynced() []string {
	var lines []string
	for _, s := range op.watcher.Unsynced() {
		v := s.Resource.Version
		line := v.GroupResource().String() + " " + v.Version
		if s.LastError != "" {
			line = fmt.Sprintf("%s: %s", line, s.LastError)
		}
		lines = append(lines, line)
	}
	return lines
}

func (op *Operator) status() debug.Status {
	status := op.collecting()
	status.Leading, status.Collector, status.Version = op.store.IsLeading(), "primary", op.options.Version
	if op.options.Companion {
		status.Collector, status.CollectorUser = "companion", op.companion.CollectorUser()
	}
	for _, pair := range op.store.EquivalentKinds() {
		status.EquivalentResources = append(status.EquivalentResources, fmt.Sprintf("%s and %s show the same objects: name the resource of one in --ignore-resources",
			pair.First, pair.Second))
	}
	return status
}

func (op *Operator) collecting() debug.Status {
	switch op.gate.State().Probe {
	case gate.Open:
		if op.options.DryRun {
			return debug.Status{Message: "dry run: decisions are recorded and nothing is written"}
		}
		switch {
		case op.options.Companion && op.companion.Presence() == companion.Missing:
			return debug.Status{Message: "no other garbage collector is running, so what no policy governs is not collected: " + canary.CompanionAdvice}
		case op.options.Companion && op.companion.Mismatch() != nil:
			return debug.Status{Message: op.companion.Mismatch().Error()}
		case op.options.Companion && op.companion.Presence() == "":
			return debug.Status{Collecting: true, Message: "doing what policies and finalizers ask for; whether another collector is running is not known yet"}
		case op.options.Companion:
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
