package loop

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/finalize"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// executor makes what carries out the intents of modules.
func (l *Loop) executor(working *rest.Config) *intents.Executor {
	return intents.New(intents.Options{
		Config: working, Catalog: l.watcher.Catalog, Inside: l.networks.Networks, Now: l.now, Log: l.log.WithName("intents"), Events: l.limits.events,
		Limited: func(by string) { l.metrics.limit(by, "events") },
		Tell: func(about *corev1.ObjectReference, kind, reason, message string) {
			l.policyEvents.Event(about, kind, reason, message)
		},
	})
}

// wireFinalizers makes what serves finalizers. It works beside the collector, with
// queues of its own.
func (l *Loop) wireFinalizers(client metadata.Interface, reader consult.Reader, executor consult.Intents) {
	l.finalizers = finalize.New(finalize.Options{
		Finalizers: l.keeper.Finalizers, Catalog: l.types, Reader: reader, Client: client,
		Intents: executor, Namespace: l.options.Namespace, Keys: l.stateKeys, States: l.limits.states, Effects: l.limits.effects,
		Leads: func() bool { return l.known.leads() && l.gate.holds() && !l.options.DryRun },
		Note:  l.noteFinalizer, Changed: l.keeper.Moved,
		Interval: l.options.SweepInterval, Now: l.now, Log: l.log.WithName("finalizers"),
	})
}

// listener hands on what is watched to those who serve finalizers, who are there once
// everything is wired.
type listener struct{ loop *Loop }

// Apply implements watch.Sink.
func (l listener) Apply(events ...graph.Event) { l.loop.finalizers.Apply(events...) }

// progress says how a finalizer gets on.
func (l *Loop) progress(uid types.UID) modules.Progress {
	p := l.finalizers.Progress(uid)
	to := modules.Progress{Pending: p.Pending, Released: p.Released, Carriers: p.Carriers, Counted: p.Counted}
	for _, s := range p.Stuck {
		apiVersion, kind := s.Object.Kind.ToAPIVersionAndKind()
		to.Stuck = append(to.Stuck, modules.Stuck{
			APIVersion: apiVersion, Kind: kind, Namespace: s.Object.Namespace, Name: s.Object.Name, UID: s.Object.UID,
			Reason: s.Reason, Message: s.Message, Since: s.Since, NextRetry: s.Retry, Deadline: s.Deadline,
		})
	}
	return to
}

// noteFinalizer tells what was decided about an object that has a finalizer, as note
// does of what was decided about its owners.
func (l *Loop) noteFinalizer(n finalize.Note) {
	entry := record.Entry{
		Time: l.now(), Object: record.ObjectOf(n.Object), Reason: record.Reason(n.Reason), Action: record.None,
		Policy: n.Finalizer.String(), How: n.Finalizer.Entry, Because: n.Message, Duration: n.Took,
	}
	switch {
	case n.Taken:
		entry.Action, entry.Result = record.RemoveFinalizer, "Done"
	case n.Reason == finalize.Attached:
		entry.Action, entry.Result = record.AddFinalizer, "Done"
	}
	if n.Err != nil {
		l.withheld(n.Err)
		entry.Result, entry.Error = "Failed", n.Err.Error()
	}
	if !n.Until.IsZero() {
		entry.Until = &n.Until
	}
	if n.Asked {
		entry.Asked = append(entry.Asked, askedByFinalizer(n))
		for _, c := range n.Intents {
			entry.Intents = append(entry.Intents, record.IntentsOf([]hostabi.Intent{c.Intent}, map[string]hostabi.Result{c.Intent.ID: c.Result})...)
		}
		l.count(entry)
	}
	l.metrics.tally(entry, n.Object)
	l.metrics.noteFinalizer(n, entry)
	entry, isNew := l.records.Add(entry)
	if n.Reason == finalize.Limited {
		l.metrics.limit(entry.Policy, "writes")
	}
	if isNew && l.tells(entry) {
		l.logEntry(entry)
		l.announceFinalizer(n, entry)
	}
}

// askedByFinalizer says what the module was asked, and what it said.
func askedByFinalizer(n finalize.Note) record.Asked {
	f := n.Finalizer
	asked := record.Asked{
		Policy: f.String(), Generation: f.Generation, Mode: "Enforce", Hook: string(hostabi.HookFinalize), Module: f.Module, Digest: f.Digest,
		Decision: string(n.Verdict.Decision), Reason: n.Verdict.Reason, Fuel: n.Fuel, Rounds: n.Rounds, Duration: int64(n.Took),
	}
	if !f.Enforce {
		asked.Mode = "Monitor"
	}
	if n.Fault != nil {
		asked.Decision, asked.Fault = "", n.Fault.Error()
	}
	asked.Transcribe(n.Exchanges, f.Bodies)
	return asked
}

// toldOfFinalizers are the decisions on finalizers that an object's owner has to know
// of. That a module is done is none of them: the object is gone.
var toldOfFinalizers = map[finalize.Reason]string{
	finalize.Waits:    corev1.EventTypeNormal,
	finalize.Blocked:  corev1.EventTypeWarning,
	finalize.Released: corev1.EventTypeWarning,
	finalize.Failed:   corev1.EventTypeWarning,
	finalize.AtFault:  corev1.EventTypeWarning,
	finalize.Overdue:  corev1.EventTypeWarning,
	finalize.NotReady: corev1.EventTypeWarning,
	finalize.Unmeant:  corev1.EventTypeWarning,
	finalize.Watched:  corev1.EventTypeNormal,
	finalize.Circular: corev1.EventTypeWarning,
	finalize.Troubled: corev1.EventTypeWarning,
	finalize.Limited:  corev1.EventTypeWarning,
}

func (l *Loop) announceFinalizer(n finalize.Note, e record.Entry) {
	if kind, ok := toldOfFinalizers[n.Reason]; ok && l.policyEvents != nil {
		l.policyEvents.Eventf(referenceTo(n.Object), kind, string(n.Reason), "%s", e.String())
	}
}
