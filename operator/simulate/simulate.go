// Package simulate runs the collector on a copy of a cluster: the same facts lead to the
// same plans by the same code. It reads and writes nothing outside of the copy.
package simulate

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/collector"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/recorder"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
)

// Cluster is a copy of a cluster. All fields are required, unless stated otherwise.
type Cluster struct {
	Graph    *graph.Graph // is changed
	Client   metadata.Interface
	Types    gather.Sources
	Serves   gather.Serves
	Reader   modulecall.Reader
	Intents  modulecall.Intents
	Policies *policies.Set // nil means unknown: every object that they may govern is kept
	Default  policies.Evaluator
	Now      func() time.Time

	// Keys returns the keys that verify and sign the state annotations of the copy. If it
	// returns an error, objects with state are kept, and OnUnverified is called.
	Keys         func() (statekey.Keys, error)
	OnUnverified func(error)

	// OnDecision is called with each decision, before the next one is made.
	OnDecision func(record.Entry)

	// OnReconcile is called before an object is reconciled.
	OnReconcile func(graph.ID)
}

// Simulation reconciles the objects of a Cluster in the goroutine of its caller. Create it
// with New. Its methods may not be called concurrently.
type Simulation struct {
	collector *collector.Collector
	store     *graphstore.Store
	cluster   Cluster
	queue     map[graph.ID]struct{}
	due       map[graph.ID]time.Time
}

// maxRecords is how many decisions are kept for the chains of later ones.
const maxRecords = 1000

// New returns a Simulation. The objects in the Cluster's graph are not queued.
func New(c Cluster) *Simulation {
	s := &Simulation{cluster: c, queue: map[graph.ID]struct{}{}, due: map[graph.ID]time.Time{}}
	s.store = graphstore.NewLeading(c.Graph, func(id graph.ID, _ string, _ int) { s.queue[id] = struct{}{} }, c.Now)
	open := &gate.Gate{}
	open.SetProbe(gate.Open)
	s.collector = collector.New(collector.Options{
		Store: s.store, Gate: open, Policies: func() *policies.Set { return c.Policies }, Default: c.Default, Client: c.Client, Watching: c.Client,
		Recorder: recorder.New(recorder.Options{
			Records: record.NewStore(record.Limits{MaxEntries: maxRecords}), Observations: policystatus.NewObservations(c.Now),
			Default: c.Default.Name(), Log: logr.Discard(), Now: c.Now, Subscriber: c.OnDecision,
		}),
		Types: c.Types, Serves: c.Serves, Reader: c.Reader, Intents: c.Intents, StateKeys: c.Keys, OnUnverified: c.OnUnverified, Now: c.Now,
	})
	s.collector.Gatherer.Reader.OnAbandoned = nil // no other goroutine may change the graph
	return s
}

// Apply applies what has happened in the Cluster.
func (s *Simulation) Apply(events ...graph.Event) { s.store.Apply(events...) }

// QueueHolds queues the matching objects whose hold may have to be added or removed.
func (s *Simulation) QueueHolds(matches func(graph.ID) bool) {
	before := maps.Clone(s.queue)
	s.collector.PoliciesChanged()
	maps.DeleteFunc(s.queue, func(id graph.ID, _ struct{}) bool {
		_, was := before[id]
		return !was && !matches(id)
	})
}

// Work reconciles the queued objects, and reports whether there were any. The caller applies
// what that has changed before the next call.
func (s *Simulation) Work(ctx context.Context) (worked bool, failed map[graph.ID]error) {
	ids := slices.SortedFunc(maps.Keys(s.queue), func(a, b graph.ID) int { return bytes.Compare(a[:], b[:]) })
	clear(s.queue)
	failed = map[graph.ID]error{}
	for _, id := range ids {
		s.cluster.OnReconcile(id)
		result, err := s.collector.Reconcile(ctx, id)
		delete(s.due, id)
		switch {
		case err != nil:
			failed[id] = err
		case result.RequeueAfter > 0 && s.collector.Waiting(id):
			s.due[id] = s.cluster.Now().Add(result.RequeueAfter)
		}
	}
	select {
	case <-s.collector.ConfirmPending():
		s.collector.Confirm(ctx)
		return true, failed
	default:
		return len(ids) != 0, failed
	}
}

// Next returns when the next object that only waits for its time is due. Wake queues it then.
func (s *Simulation) Next() (at time.Time, waits bool) {
	for _, due := range s.due {
		if !waits || due.Before(at) {
			at, waits = due, true
		}
	}
	return at, waits
}

// Wake queues the objects that are due.
func (s *Simulation) Wake() {
	for id, due := range s.due {
		if !due.After(s.cluster.Now()) {
			s.queue[id] = struct{}{}
		}
	}
}

// Forget forgets when an object is due.
func (s *Simulation) Forget(id graph.ID) { delete(s.due, id) }
