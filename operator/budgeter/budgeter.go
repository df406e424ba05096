// Package budgeter lets deletions pass that the DeletionBudgets and ClusterDeletionBudgets selecting them allow, and has
// the others wait in order.
//
// Each budget has a limiter, which reserves deletions in the budget's status by compare-and-swap before they are sent. How
// many may be reserved is decided by package budget.
package budgeter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/budget"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/livesource"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// maxOfNamespace and maxOfCluster bound the budgets that are kept. What one beyond that selects is not deleted.
	// Twice as many have a status that says so.
	maxOfNamespace, maxOfCluster = 16, 64
	maxReporting                 = 2

	// maxRequests is the number of requests of all budgets at the same time, and maxCounts that of counts.
	maxRequests, maxCounts = 4, 3

	// maxCalls is the number of deletions that are called and not yet queued.
	maxCalls = 2 * budget.MaxLine
)

// Options configure a Budgeter. All fields are required, unless stated otherwise.
type Options struct {
	Client  client.Client // reads live
	Absent  livelist.Absent
	ID      string      // of this process, unique, also among former ones
	Leading func() bool // reports whether this replica deletes, and so reserves deletions and writes status
	Catalog func() *catalog.Catalog
	Reader  modulecall.Reader
	Bulk    *bulkread.Reader // optional

	// Count counts the objects that a budget selects.
	Count func(context.Context, *policies.Policy) (int64, error)

	Events record.EventRecorder
	Now    func() time.Time // with a monotonic clock
	Log    logr.Logger
}

// Budgeter has the budgets. Create it with New, and run it. Its methods may be called concurrently, except for Run.
type Budgeter struct {
	options Options
	began   time.Time
	source  *livesource.Source[[]budgetstore.Resource]
	slots   *semaphore.Weighted // for requests
	counts  *counts
	calls   calls

	mu       sync.Mutex // covers what follows
	limiters map[types.UID]*limiter
	view     *view
	ctx      context.Context // of Run; nil before  //nolint:containedctx // limiters start while it runs
	running  sync.WaitGroup
}

// New returns a Budgeter that has read nothing yet.
func New(o Options) *Budgeter {
	b := &Budgeter{
		options: o, began: o.Now(), slots: semaphore.NewWeighted(maxRequests), counts: newCounts(), limiters: map[types.UID]*limiter{}, view: newView(nil),
		calls: newCalls(),
	}
	b.source = livesource.New(livesource.Options[[]budgetstore.Resource]{
		Name: "deletion budgets", Kinds: []string{v1alpha1.KindDeletionBudget, v1alpha1.KindClusterDeletionBudget},
		Read:   b.read,
		Ignore: b.isKnown, Now: o.Now, Log: o.Log,
	})
	return b
}

// Apply implements watch.Sink.
func (b *Budgeter) Apply(events ...graph.Event) { b.source.Apply(events...) }

// Refresh has the budgets read now.
func (b *Budgeter) Refresh() { b.source.Refresh() }

// Called returns the objects whose turn it has come to be deleted, after it has waited for one.
func (b *Budgeter) Called(ctx context.Context) []graph.ID { return b.calls.take(ctx) }

// Run reads the budgets and reserves deletions until ctx ends.
func (b *Budgeter) Run(ctx context.Context) error {
	b.mu.Lock()
	b.ctx = ctx
	for _, l := range b.limiters {
		b.start(l)
	}
	b.mu.Unlock()
	err := b.source.Run(ctx)
	b.running.Wait()
	return err
}

// instant returns the time on both clocks.
func (b *Budgeter) instant() budget.Instant {
	now := b.options.Now()
	return budget.Instant{Wall: now, Mono: now.Sub(b.began)}
}

// read reads the budgets. They are in force when it returns, before the source says that they are known.
func (b *Budgeter) read(ctx context.Context) ([]budgetstore.Resource, bool, error) {
	all, served, err := budgetstore.Read(ctx, b.options.Client, b.options.Absent)
	if err == nil {
		b.update(all)
	}
	return all, served, err
}

// update starts and stops limiters.
func (b *Budgeter) update(all []budgetstore.Resource) {
	b.mu.Lock()
	defer b.mu.Unlock()
	budgetstore.Sort(all)
	found := map[types.UID]*limiter{}
	var (
		list []*limiter
		of   = map[string]int{}
	)
	for _, r := range all {
		if r.GetDeletionTimestamp() != nil {
			continue
		}
		l, known := b.limiters[r.GetUID()]
		if !known {
			l = newLimiter(b, r)
		}
		of[r.GetNamespace()]++
		l.observe(r, of[r.GetNamespace()] > limitOf(r.GetNamespace()))
		if !l.started && b.ctx != nil && of[r.GetNamespace()] <= maxReporting*limitOf(r.GetNamespace()) {
			b.start(l)
		}
		found[r.GetUID()], list = l, append(list, l)
	}
	for uid, l := range b.limiters {
		if found[uid] == nil {
			l.end()
		}
	}
	b.counts.forget(of)
	b.limiters, b.view = found, newView(list)
}

func limitOf(namespace string) int {
	if namespace == "" {
		return maxOfCluster
	}
	return maxOfNamespace
}

// start starts a limiter. The caller holds mu.
func (b *Budgeter) start(l *limiter) {
	ctx, cancel := context.WithCancel(b.ctx)
	l.stop, l.started = cancel, true
	b.running.Go(func() { l.run(ctx) })
}

// isKnown reports whether an event shows a state that a limiter knows, such as one that it has written.
func (b *Budgeter) isKnown(o graph.Object) bool {
	b.mu.Lock()
	l := b.limiters[o.UID]
	b.mu.Unlock()
	return l != nil && l.knows(o.ResourceVersion)
}

// current returns the budgets in force; an error, for people, if they are not known.
func (b *Budgeter) current() (*view, error) {
	if _, err := b.source.Current(); err != nil {
		return nil, fmt.Errorf("whether a deletion budget limits this is not known: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.view, nil
}

// Summary is the state of one budget, for metrics.
type Summary struct {
	Budget        string // kind and name
	Allowed, Used int
	Waiting       int // on this replica
	Exhausted     bool
}

// Summaries returns the states of all budgets, those of the cluster first; an error if they are not known.
func (b *Budgeter) Summaries() ([]Summary, error) {
	v, err := b.current()
	if err != nil {
		return nil, err
	}
	var all []Summary
	for _, l := range v.limiters {
		all = append(all, l.summary())
	}
	return all, nil
}

// view has the budgets in force at one moment. It is immutable.
type view struct {
	limiters []*limiter
	set      *policies.Set
	of       map[*policies.Policy]*limiter
}

func newView(limiters []*limiter) *view {
	v := &view{limiters: limiters, of: map[*policies.Policy]*limiter{}}
	var all []*policies.Policy
	for _, l := range limiters {
		p := l.selection()
		v.of[p], all = l, append(all, p)
	}
	v.set = policies.NewSet(all)
	return v
}

// sorted returns limiters in the order in which tokens are taken, which is the same for all deletions.
func sorted(all []*limiter) []*limiter {
	slices.SortFunc(all, func(a, b *limiter) int { return strings.Compare(a.key, b.key) })
	return all
}

// calls are the objects whose turn it is.
type calls struct {
	mu     sync.Mutex // covers ids
	ids    []graph.ID
	signal chan struct{} // capacity 1
}

func newCalls() calls { return calls{signal: make(chan struct{}, 1)} }

func (c *calls) add(ids []graph.ID) {
	if len(ids) == 0 {
		return
	}
	c.mu.Lock()
	if len(c.ids)+len(ids) <= maxCalls { // those that are lost are decided again later
		c.ids = append(c.ids, ids...)
	}
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// take waits for calls, and returns them; nil after ctx has ended.
func (c *calls) take(ctx context.Context) (ids []graph.ID) {
	select {
	case <-ctx.Done():
		return nil
	case <-c.signal:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ids, c.ids = c.ids, nil
	return ids
}
