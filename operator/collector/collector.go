package collector

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/lastseen"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/observe"
	"github.com/gleaner-dev/gleaner/operator/order"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// ProofLifetime is how long a read that has found no owner is valid (defect 3.23).
const ProofLifetime = 10 * time.Minute

const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = time.Minute // limit for retries of denied writes (defect 3.28)
)

// Options configure a Collector. All fields are required, unless stated otherwise.
type Options struct {
	Store    *graphstore.Store
	Gate     *gate.Gate
	Recorder Recorder
	Policies func() *policies.Set // nil until they are known

	// Selectors returns the index of the selectors of Policies. Nil means that objects are read to
	// evaluate selectors.
	Selectors func() *selectors.Index

	Default policies.Evaluator // decides if no policy does

	Client   metadata.Interface // reads and writes objects
	Watching metadata.Interface // lists objects for the barrier
	Types    gather.Sources
	Serves   gather.Serves
	Reader   modulecall.Reader
	Bulk     *bulkread.Reader // optional
	Intents  modulecall.Intents

	Namespace    string // of the operator
	StateKeys    func() (statekey.Keys, error)
	OnUnverified func(error)         // called if an object is kept because its state can't be verified; optional
	StateLimiter *writelimit.Limiter // limits writes of module states; nil means no limit
	Steps        []writer.Step       // that each write passes before the gate; optional

	// ObserveTimeout limits how long dependents are not orphaned because the controller of their owner has
	// not observed that the owner is being deleted; 0 means that it is not waited for.
	ObserveTimeout time.Duration

	Companion bool // Gleaner runs in addition to the built-in garbage collector
	DryRun    bool // decide and record, but write nothing
	Now       func() time.Time

	// Sleep waits, or returns when the context ends. Nil means the wall clock.
	Sleep func(context.Context, time.Duration)
}

// Outcome is a decision about an object, and its result.
type Outcome struct {
	Facts      decide.Facts
	Plan       decide.Plan
	Evaluation evaluate.Result
	Result     act.Result
	Err        error // of carrying it out
	Duration   time.Duration
}

// Recorder records what a Collector does.
type Recorder interface {
	Record(Outcome)
	RecordWithheld(...*modulecall.WithheldError)
	RecordStateLimited(policy string) // a state was not written, since its policy has reached its limit
}

// Collector reconciles objects: it gathers facts, decides, carries out the decision, and
// records it. Create it with New. Its methods may be called concurrently.
type Collector struct {
	Decider  *Decider
	Gatherer *gather.Gatherer

	options     Options
	defaultName string // of the evaluator that decides if no policy does

	store    *graphstore.Store
	barrier  *gather.Barrier
	actor    *act.Actor
	writer   writer.Writer
	memories Memories
	metadata lastseen.Store // of objects with a hold, for their state annotations
	replaced replaced
	parked   parked
	order    order.Progress

	deletions observe.Deletions // of owners that orphan dependents

	backoff workqueue.TypedRateLimiter[graph.ID]
	parking workqueue.TypedRateLimiter[graph.ID] // backoff of parked objects
}

// New returns a Collector.
func New(o Options) *Collector {
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	c := &Collector{
		options: o,
		store:   o.Store,
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[graph.ID](minBackoff, maxBackoff),
		parking: workqueue.NewTypedItemExponentialFailureRateLimiter[graph.ID](minParking, maxParking),
		actor:   act.New(o.Client, o.Types.Catalog, o.StateKeys),
		writer: writer.Writer{
			Steps: append(slices.Clone(o.Steps), writer.GateStep{Gate: o.Gate, Needs: writer.OpenGate}), DryRun: o.DryRun,
		},
	}
	if o.Default != nil {
		c.defaultName = o.Default.Name()
	}
	c.barrier = gather.NewBarrier(c.store, o.Types, o.Watching, c.store.Apply, o.Now)
	c.barrier.IncludeHeld, c.barrier.Order = o.Companion, &c.order
	c.Gatherer = &gather.Gatherer{
		Graph: c.store, Catalog: o.Types.Catalog, Reader: gather.NewReader(o.Client, o.Serves, o.Now),
		Barrier: c.barrier, Observe: c.store.Apply, Now: o.Now, Order: &c.order,
	}
	if o.Companion {
		c.Gatherer.Requests = &gather.Requests{}
	} else {
		c.Gatherer.Observed = c.isObserved
	}
	c.Gatherer.Reader.OnAbandoned = c.store.Apply
	c.actor.OnStateSaved = func(o graph.Object, after *metav1.PartialObjectMetadata) {
		c.metadata.Put(after, c.options.Now())
		c.store.ApplyWritten(o)
	}
	c.Decider = &Decider{
		Evaluator: &evaluate.Evaluator{
			Policies: o.Policies, Default: o.Default, Catalog: o.Types.Catalog, Reader: o.Reader, Bulk: o.Bulk, Intents: o.Intents, Namespace: o.Namespace, Now: o.Now,
			Metadata: func(o graph.Object) (*metav1.PartialObjectMetadata, bool) {
				return c.metadata.Get(o.UID, o.ResourceVersion, c.options.Now())
			},
			DependentsByKind: c.store.DependentsByKind, EquivalentKinds: c.store.EquivalentKinds, Companion: o.Companion,
			StateKeys: o.StateKeys, OnUnverified: o.OnUnverified, Selectors: o.Selectors,
		},
		Types: o.Types.Catalog, Policies: o.Policies, NeedsHold: c.store.NeedsHold, Companion: o.Companion, Now: o.Now,
	}
	return c
}

// PoliciesChanged queues every object that the policies in force, or the types that they
// select, may concern.
func (c *Collector) PoliciesChanged() {
	c.store.Sweep()
	set := c.options.Policies()
	if set == nil {
		return // holds remain as they are
	}
	kinds := map[schema.GroupKind]struct{}{}
	for _, r := range c.options.Types.Catalog().Collected() {
		if slices.ContainsFunc(set.All(), func(p *policies.Policy) bool { return placesHolds(p, r.Version.GroupResource()) }) {
			kinds[r.GroupKind()] = struct{}{}
		}
	}
	c.store.SetHeldKinds(kinds)
}

// placesHolds reports whether a policy needs holds on some objects of a resource.
func placesHolds(p *policies.Policy, r schema.GroupResource) bool {
	return p.Enforce && !p.HooksUnknown && p.HasHook(hostabi.HookPropagate) && p.Selects(r)
}

// Remember keeps what watch events show and a reconciliation needs, before the Store has the
// events and queues their objects.
func (c *Collector) Remember(events ...graph.Event) {
	for _, e := range events {
		if seen, ok := e.(graph.Seen); ok && seen.Metadata != nil && seen.Object.Held && seen.Object.HasState {
			c.metadata.Put(seen.Metadata, c.options.Now())
		}
	}
}

// Observe handles watch events, after the Store has.
func (c *Collector) Observe(events ...graph.Event) {
	if r := c.Gatherer.Requests; r != nil {
		if changed := r.Apply(events...); len(changed) != 0 {
			c.store.Requeue(changed) // the graph may have an object that was read later
		}
	}
	c.queueOrdered(events...)
}

// ConfirmPending returns a channel with a value if objects wait for a round of the barrier.
func (c *Collector) ConfirmPending() <-chan struct{} { return c.barrier.Pending() }

// Confirm runs a round of the barrier, and requeues the objects that waited for it.
func (c *Collector) Confirm(ctx context.Context) { c.store.Requeue(c.barrier.RunRound(ctx)) }

// RunSweeps queues every object that may need work at an interval, in case an event was
// lost, and forgets expired proofs, until ctx ends.
func (c *Collector) RunSweeps(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		c.store.Apply(graph.Expired{Before: c.options.Now().Add(-ProofLifetime)})
		c.store.Sweep()
	}
}

// Waiting reports whether an object waits because a policy has said so.
func (c *Collector) Waiting(id graph.ID) bool { return c.memories.Get(id).Waiting() }

// Keep remembers that the built-in collector was denied to delete an object that it may not try to
// delete again soon: once a decision deletes it, Gleaner does.
func (c *Collector) Keep(id graph.ID) { c.memories.Keep(id) }

// Follow forgets what only a leader needs.
func (c *Collector) Follow() {
	c.parked.clear()
	c.order.Clear()
	c.deletions.Clear()
}

// ParkedCount returns the number of objects with too many owners of which some were not
// read yet.
func (c *Collector) ParkedCount() int { return c.parked.count() }

// sleep waits on the wall clock.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
