package run

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
)

// executor returns what carries out the intents of modules.
func (op *Operator) executor(working *rest.Config) *intents.Executor {
	return intents.New(intents.Options{
		Config: working, Catalog: op.watcher.Catalog, ClusterNetworks: op.networks.Networks, Now: op.now, Log: op.log.WithName("intents"), EventLimiter: op.limits.events,
		EventLimited: func(by string) { op.recorder.CountLimited(by, "events") },
		RecordEvent: func(about *corev1.ObjectReference, kind, reason, message string) {
			op.policyEvents.Event(about, kind, reason, message)
		},
	})
}

// connectFinalizers creates what serves finalizers, independently of the collector, with
// its own queues.
func (op *Operator) connectFinalizers(client metadata.Interface, reader modulecall.Reader, executor modulecall.Intents) {
	op.finalizers = finalizers.New(finalizers.Options{
		Finalizers: op.snapshots.Finalizers, Catalog: op.types, Reader: reader, Client: client,
		Intents: executor, Namespace: op.options.Namespace, Keys: op.keys.Keys, StateLimiter: op.limits.states, EffectLimiter: op.limits.effects,
		Gate:   &op.gate, // which nobody leads in a dry run
		Record: op.recorder.RecordFinalizer, ProgressChanged: op.statusWriter.FinalizersChanged,
		Interval: op.options.SweepInterval, Now: op.now, Log: op.log.WithName("finalizers"),
	})
}

// listener passes events to the collector and to the finalizers, which are created after
// the watcher.
type listener struct{ operator *Operator }

// Apply implements watch.Sink.
func (l listener) Apply(events ...graph.Event) {
	l.operator.collector.Observe(events...)
	l.operator.finalizers.Apply(events...)
}

// progress returns the progress of a finalizer.
func (op *Operator) progress(uid types.UID) policystatus.Progress {
	p := op.finalizers.Progress(uid)
	to := policystatus.Progress{Pending: p.Pending, Released: p.Released, Carriers: p.WithFinalizer, Counted: p.Counted}
	for _, s := range p.Stuck {
		apiVersion, kind := s.Object.Kind.ToAPIVersionAndKind()
		to.Stalled = append(to.Stalled, v1alpha1.StalledObject{
			APIVersion: apiVersion, Kind: kind, Namespace: s.Object.Namespace, Name: s.Object.Name, UID: string(s.Object.UID),
			Reason: s.Reason, Message: s.Message, SinceTime: metav1.NewTime(s.Since).Rfc3339Copy(),
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
