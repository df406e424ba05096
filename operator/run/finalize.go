package run

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
)

// executor returns what carries out the intents of modules.
func (op *Operator) executor(working *rest.Config) *intents.Executor {
	return intents.New(intents.Options{
		Config: working, ReuseConnections: op.options.ReuseConnections, Catalog: op.watcher.Catalog, ClusterNetworks: op.networks.Networks, Now: op.now, Log: op.log.WithName("intents"), EventLimiter: op.limits.events,
		EventLimited: func(by string) { op.recorder.CountLimited(by, "events") },
		RecordEvent: func(about *corev1.ObjectReference, kind, reason, message string) {
			op.policyEvents.Event(about, kind, reason, message)
		},
	})
}

// connectFinalizers creates what serves finalizers, independently of the collector, with
// its own queues.
func (op *Operator) connectFinalizers(client metadata.Interface, from reads, executor *intents.Executor) {
	op.finalizers = finalizers.New(finalizers.Options{
		Finalizers: op.snapshots.Finalizers, Catalog: op.types, Reader: from.reader, Bulk: from.bulk, Client: client,
		Intents: executor, MayDelete: executor.MayDelete, Lookup: op.lookup, Namespace: op.options.Namespace, Keys: op.keys.Keys, Steps: op.steps(), StateLimiter: op.limits.states, EffectLimiter: op.limits.effects,
		Gate:   &op.gate, // on which Lead is not called in a dry run
		Record: op.recorder.RecordFinalizer, ProgressChanged: op.statusWriter.FinalizersChanged,
		Interval: op.options.SweepInterval, Now: op.now, Log: op.log.WithName("finalizers"),
	})
}

// lookup returns an object of the graph.
func (op *Operator) lookup(uid types.UID) (graph.Object, bool) {
	seen, ok := op.store.Lookup(graph.IDOf(uid))
	return seen.Object, ok
}

// memory passes events to the collector before the store has them. The collector is created
// after the watcher.
type memory struct{ operator *Operator }

// Apply implements watch.Sink.
func (m memory) Apply(events ...graph.Event) { m.operator.collector.Remember(events...) }

// listener passes events to the collector and to the finalizers, which are created after
// the watcher.
type listener struct{ operator *Operator }

// Apply implements watch.Sink.
func (l listener) Apply(events ...graph.Event) {
	l.operator.collector.Observe(events...)
	l.operator.finalizers.Apply(events...)
}
