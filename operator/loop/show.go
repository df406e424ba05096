package loop

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Show returns what the debug endpoints show; all but the sight of clients,
// which is the server's to say.
func (l *Loop) Show() debug.Source {
	return debug.Source{
		Dump:     l.known.dump,
		Synced:   l.watcher.Synced,
		Unsynced: l.unsynced,
		Records:  l.records.Entries,
		Since:    l.recordedSince,
		Status:   l.status,
	}
}

// recordedSince is since when all that was decided is recorded here: this replica leads
// since then, and has not evicted a record. Before that another one led, or none, whose
// records may be lost. It is zero for one that does not lead.
func (l *Loop) recordedSince() time.Time {
	led := l.known.leadsSince()
	if forgotten := l.records.Forgotten(); !led.IsZero() && forgotten.After(led) {
		return forgotten
	}
	return led
}

// Records returns the decisions so far, of one object if uid is not "".
func (l *Loop) Records(uid types.UID) []record.Entry { return l.records.Entries(uid) }

// ResourceOf returns the resource that serves a kind now.
func (l *Loop) ResourceOf(gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
	resource, ok := l.watcher.Catalog().Preferred(gvk.GroupKind())
	return resource.Version, ok
}

func (l *Loop) unsynced() []string {
	var lines []string
	for _, s := range l.watcher.Unsynced() {
		v := s.Resource.Version
		line := v.GroupResource().String() + " " + v.Version
		if s.LastError != "" {
			line = fmt.Sprintf("%s: %s", line, s.LastError)
		}
		lines = append(lines, line)
	}
	return lines
}

func (l *Loop) status() debug.Status {
	status := l.collecting()
	status.Leading, status.Collector, status.Version = l.known.leads(), "primary", l.options.Version
	if l.options.Beside {
		status.Collector, status.CollectorUser = "companion", l.keeper.CollectorUser()
	}
	for _, pair := range l.known.twins() {
		status.Twins = append(status.Twins, fmt.Sprintf("%s and %s show the same objects: name the resource of one in --ignore-resources",
			pair.First, pair.Second))
	}
	return status
}

func (l *Loop) collecting() debug.Status {
	switch l.gate.get() {
	case Open:
		if l.options.DryRun {
			return debug.Status{Message: "dry run: decisions are recorded and nothing is written"}
		}
		switch {
		case l.options.Beside && l.company.missing():
			return debug.Status{Message: "no other garbage collector is running, so what no policy governs is not collected: " + AdviceAlone}
		case l.options.Beside && l.keeper.Mistaken() != nil:
			return debug.Status{Message: l.keeper.Mistaken().Error()}
		case l.options.Beside && !l.company.known():
			return debug.Status{Collecting: true, Message: "doing what policies and finalizers ask for; whether another collector is running is not known yet"}
		case l.options.Beside:
			return debug.Status{Collecting: true, Message: "doing what policies and finalizers ask for, beside another collector"}
		}
		return debug.Status{Collecting: true, Message: "collecting"}
	case Shut:
		return debug.Status{Message: "another garbage collector is running, so nothing is written: " + Advice}
	default:
		return debug.Status{Message: "not leading, or still finding out whether another garbage collector is running"}
	}
}

func (k *known) twins() []graph.Twins {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.Twins()
}

func (k *known) dump(uids ...types.UID) graph.Dump {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.Dump(uids...)
}

func (k *known) has(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.graph.Has(uid)
}

// HasUID reports whether the graph has a node of this UID (G-78).
func (l *Loop) HasUID(uid types.UID) bool { return l.known.has(uid) }

// Pending returns how many objects wait to be looked at, or are in hand.
func (l *Loop) Pending() int { return l.known.waiting() }
