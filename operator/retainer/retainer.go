// Package retainer carries out retention policies: it follows the objects that they select, has package retention decide when a limit is
// reached or something changes, and removes what is due.
//
// Every replica follows objects, so that a new leader knows which were used; only the leader removes. Nothing is polled: an evaluation
// is due when an object changes or a time has come. Before a removal, the object is read again, and so is what the decision depends on
// besides: the other objects of its policy for limits of numbers, and everything that may refer to it. Pauses, budgets and the archive
// are steps of the writer.
//
// What it does not know keeps an object: until a policy's objects are listed, nothing is decided about them.
package retainer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/follow"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

const (
	// maxOfNamespace and maxOfCluster bound the policies that are evaluated. What one beyond that selects is kept.
	maxOfNamespace, maxOfCluster = 16, 64

	// maxObjects bounds the objects of a policy, and those of all policies of a namespace together.
	maxObjects = 200_000

	// settle is how long an evaluation waits for more changes. An evaluation takes at most a share of 1/maxShare of the time.
	settle   = 200 * time.Millisecond
	maxShare = 20

	// minWake is the least time between two looks at which policies are due, and minPublish that between two publications.
	minWake, minPublish = 20 * time.Millisecond, 100 * time.Millisecond

	// workers is the number of policies whose objects are removed at the same time, at most one of each namespace. After
	// maxPerTurn removals, or maxTurn, another policy has its turn.
	workers    = 4
	maxPerTurn = 100
	maxTurn    = 10 * time.Second

	minRetry, maxRetry = time.Second, 30 * time.Second

	// A removal that has failed is tried again after a delay between these.
	minFailureRetry, maxFailureRetry = 5 * time.Second, 5 * time.Minute

	// overflowRetry is when the objects of a policy that selects too many are counted again.
	overflowRetry = 10 * time.Minute

	removeTimeout = 30 * time.Second

	// confirmTimeout is the timeout of a list of all objects of a policy, before a turn begins.
	confirmTimeout = 5 * time.Minute
)

// Options configure a Retainer. All fields are required, unless stated otherwise.
type Options struct {
	// Policies returns the policies in force; false if they are not known. Changed returns a channel that is closed when they change.
	Policies func() ([]*policyset.Retention, bool)
	Changed  func() <-chan struct{}

	Catalog func() *catalog.Catalog

	// Absent reports whether a kind is proven not to be served, by a request.
	Absent func(context.Context, schema.GroupKind) (bool, error)

	Lister follow.Lister
	Client dynamic.Interface // for watches
	Reader modulecall.Reader

	// Evaluator evaluates the policies with the hook retain, and Graph has the dependents of objects.
	Evaluator Evaluator
	Graph     evaluate.Graph

	Actor   *act.Actor
	Steps   []writer.Step // of writes, before the gate
	Gate    *gate.Gate
	DryRun  bool
	Record  func(Outcome)
	Now     func() time.Time
	Log     logr.Logger
	Ignored string // the operator's namespace, in which nothing is removed

	MaxObjects int // of a policy, and of all policies of a namespace together; 0: 200,000
}

// Outcome is a removal, or an attempt at one.
type Outcome struct {
	Object      graph.Object
	Policy      *policyset.Retention
	Reason      retain.Reason
	Message     string // for people
	Kept        bool   // by another policy, or since it can't be evaluated: with Err
	Evaluated   evaluate.Result
	Action      decide.Delete // unless it was kept
	Result      act.Result
	Err         error
	Duration    time.Duration
	NextAttempt time.Time // zero: there is none
}

// Retainer carries out retention policies. Create it with New, and run it. Its methods may be called concurrently.
type Retainer struct {
	options Options
	writer  writer.Writer
	status  latest.Value[Status]
	wake    chan struct{} // capacity 1: something may be due
	turns   chan struct{} // capacity 1: something may have to be removed
	refresh chan struct{} // capacity 1: policies or types may have changed
	changed chan struct{} // capacity 1: what is published may have changed

	mu         sync.Mutex // covers what follows
	plans      map[types.UID]*plan
	interested map[place][]*plan  // those of the cluster have the namespace ""
	referred   map[string][]*plan // those that select what others can refer to, by namespace
	followed   map[schema.GroupKind]*followed
	uses       *uses                      // nil: no policy selects objects that others refer to
	namespaces map[string]namespaceLabels // nil: no policy selects by them
	listed     bool                       // all namespaces are known
	serving    map[string]bool            // lanes whose objects a worker removes
}

// place is where objects of a kind are.
type place struct {
	kind      schema.GroupKind
	namespace string
}

type namespaceLabels struct {
	uid    types.UID
	labels map[string]string
}

// New returns a Retainer that follows nothing yet.
func New(o Options) *Retainer {
	if o.MaxObjects == 0 {
		o.MaxObjects = maxObjects
	}
	return &Retainer{
		options: o, wake: make(chan struct{}, 1), turns: make(chan struct{}, workers), refresh: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		writer: writer.Writer{Steps: append(append([]writer.Step{}, o.Steps...), writer.GateStep{Gate: o.Gate, Needs: writer.Leadership}), DryRun: o.DryRun},
		plans:  map[types.UID]*plan{}, followed: map[schema.GroupKind]*followed{}, serving: map[string]bool{},
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Refresh has policies compared with the types that are served.
func (r *Retainer) Refresh() { signal(r.refresh) }

// Retry has removals that wait for a pause or a budget tried again.
func (r *Retainer) Retry() {
	r.mu.Lock()
	for _, p := range r.plans {
		p.waitsUntil = time.Time{}
	}
	r.mu.Unlock()
	r.wakeWorkers()
}

func (r *Retainer) wakeWorkers() {
	for range workers {
		signal(r.turns)
	}
}

// Run follows, evaluates and removes until ctx ends.
func (r *Retainer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { r.configure(ctx) })
	running.Go(func() { r.publish(ctx) })
	for range workers {
		running.Go(func() { r.work(ctx) })
	}
	r.evaluate(ctx)
	running.Wait()
	r.mu.Lock()
	all := r.followed
	r.followed = map[schema.GroupKind]*followed{}
	r.mu.Unlock()
	for _, f := range all {
		f.end()
	}
	return nil
}

// configure follows the policies in force.
func (r *Retainer) configure(ctx context.Context) {
	var retry <-chan time.Time
	for {
		changed := r.options.Changed()
		if all, known := r.options.Policies(); known {
			retry = nil
			if again := r.apply(ctx, all); again > 0 {
				retry = time.After(again)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.refresh:
		case <-retry:
		}
	}
}

// evaluate evaluates policies when they are due, until ctx ends.
func (r *Retainer) evaluate(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := r.evaluateDue()
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(next.Sub(r.options.Now()), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
			pause(ctx, minWake)
		case <-timer.C:
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// evaluateDue evaluates the policies that are due, and returns when the next one is; zero: when something changes.
func (r *Retainer) evaluateDue() (next time.Time) {
	r.mu.Lock()
	due := make([]*plan, 0, len(r.plans))
	for _, p := range r.plans {
		at := p.due()
		switch {
		case at.IsZero():
		case at.After(r.options.Now()):
			next = earliest(next, at)
		default:
			due = append(due, p)
		}
	}
	r.mu.Unlock()
	for _, p := range due {
		r.mu.Lock()
		r.evaluatePlan(p)
		next = earliest(next, p.due())
		r.mu.Unlock()
	}
	if len(due) != 0 {
		r.wakeWorkers()
		signal(r.changed)
	}
	return next
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// evaluatePlan evaluates a policy. The caller holds mu.
func (r *Retainer) evaluatePlan(p *plan) {
	began, start := r.options.Now(), time.Now()
	p.release(began)
	p.decide(p.survey.Evaluate(r.moment(began)), began)
	p.notBefore = r.options.Now().Add(max(settle, maxShare*time.Since(start)))
}

// lookup returns the labels of a namespace, as the watch has shown them last. The caller holds mu.
func (r *Retainer) lookup(name string) (map[string]string, error) {
	if name == "" {
		return nil, nil
	}
	n, known := r.namespaces[name]
	if !r.listed || !known {
		return nil, fmt.Errorf("the labels of namespace %s are not known yet", name)
	}
	return n.labels, nil
}

// object converts an object for the writer.
func object(o *unstructured.Unstructured) graph.Object {
	return graph.ObjectOf(o.GroupVersionKind(), o)
}
