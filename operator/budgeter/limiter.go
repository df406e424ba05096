package budgeter

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/budget"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// minBatch and maxBatch are the number of deletions that are reserved at once. It doubles while they are used up,
	// and is halved when some of them expire. At most a share of 1/batchShare of what is allowed is reserved at once, if
	// that is more than minBatch: what a process has reserved when it is killed is used up for everyone.
	minBatch, maxBatch = 8, 512
	batchShare         = 4

	requestTimeout = 5 * time.Second
	retryDelay     = time.Second

	// settleDelay is when the outcomes of deletions are written although nothing more is reserved.
	settleDelay = time.Second

	// statusDelay is how often the number of waiting deletions is written.
	statusDelay = 5 * time.Second

	// A count of objects is used for the window that follows. Before the first deletion of a window, it is renewed
	// if it is older than a share of 1/countShare of the window, and at least minCountAge.
	countShare   = 10
	minCountAge  = 30 * time.Second
	countTimeout = 10 * time.Second
)

// The reasons of events.
const (
	eventExhausted = "BudgetExhausted" // deletions wait for the budget
	eventAvailable = "BudgetAvailable" // deletions no longer wait for the budget
)

// limiter reserves the deletions of one budget.
type limiter struct {
	*Budgeter
	key     string // see sorted
	stop    context.CancelFunc
	started bool          // covered by the mutex of the Budgeter, as stop is
	trigger chan struct{} // capacity 1: something has to be reserved or written

	mu       sync.Mutex           // covers what follows
	stored   budgetstore.Resource // as it was read or written last; never changed
	resource budgetstore.Resource // the same, with a newer count of objects; never changed
	policy   *policies.Policy
	problem  string // why nothing is deleted; "": none
	excess   bool   // there are too many budgets
	counting string // why the objects of a percentage can't be counted; "": they can
	alloc    *budget.Allocator
	observed bool // the allocator has the ledger and the limit
	line     budget.Line[graph.ID]
	batch    int  // deletions to reserve at once
	wanted   bool // more deletions have to be reserved, although none waits

	writing bool                  // a status is being written
	pending *budgetstore.Resource // what was read meanwhile
	counted time.Time             // when the number of waiting deletions was written

	leads  bool          // this replica has led when the limiter worked last
	waited time.Duration // when a deletion was last known to wait, or this replica came to lead
}

func newLimiter(b *Budgeter, r budgetstore.Resource) *limiter {
	return &limiter{
		Budgeter: b, key: r.GetNamespace() + "/" + r.GetName(), stop: func() {}, trigger: make(chan struct{}, 1),
		alloc: budget.NewAllocator(b.options.ID), batch: minBatch,
	}
}

// end stops the limiter of a budget that was deleted. What has waited for it is decided again.
func (l *limiter) end() {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls.add(l.line.Clear())
}

// wake has the limiter look for what is to be done.
func (l *limiter) wake() {
	select {
	case l.trigger <- struct{}{}:
	default:
	}
}

// knows reports whether a state of the resource is the current one or an earlier one.
func (l *limiter) knows(version string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(version, l.resource.GetResourceVersion())
	return err == nil && order <= 0
}

// observe sets the resource as it was read.
func (l *limiter) observe(r budgetstore.Resource, excess bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.wake() // this replica may have come to lead
	if l.excess = excess; l.writing {
		l.pending = &r // it may be what is being written, whose tokens can be taken only if the allocator knows that
		return
	}
	l.update(r)
}

// update sets the resource unless it is outdated. The caller holds mu.
func (l *limiter) update(r budgetstore.Resource) {
	if l.resource.Object != nil {
		order, err := resourceversion.CompareResourceVersion(r.GetResourceVersion(), l.resource.GetResourceVersion())
		if err == nil && order <= 0 {
			return
		}
	}
	l.stored = r
	l.set(r)
}

// set sets the resource. The caller holds mu.
func (l *limiter) set(r budgetstore.Resource) {
	if l.policy == nil || l.resource.GetGeneration() != r.GetGeneration() {
		l.problem = ""
		var err error
		if l.policy, err = r.Selection(); err != nil {
			l.problem = err.Error()
		} else if r.Spec.Window.Duration <= 0 {
			l.problem = "window is not positive: write a duration from 10s to 168h"
		}
	}
	l.resource = r
	if l.observed = l.problem == "" && !l.needsFirstCount(); l.observed {
		l.alloc.Observe(r.Ledger(), r.Limit(), l.instant())
	}
}

// needsFirstCount reports whether there is no count for a percentage.
func (l *limiter) needsFirstCount() bool {
	m := l.resource.Status.Matching
	return l.resource.Percentage() != 0 && (m == nil || m.Generation != l.resource.GetGeneration())
}

// selection returns the policy that selects the same objects.
func (l *limiter) selection() *policies.Policy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.policy
}

// take takes a token for the deletion of an object. Without one, the object waits, for the reason that is returned.
func (l *limiter) take(id graph.ID) (t budget.Token, waits string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.instant()
	switch {
	case l.excess:
		return t, fmt.Sprintf("%s is not in force: there are more than %d budgets in its namespace or the cluster: remove some", l.resource, limitOf(l.resource.GetNamespace()))
	case l.problem != "":
		return t, fmt.Sprintf("%s is not in force: %s", l.resource, l.problem)
	case l.observed && !l.resource.IsTripped() && l.line.MayPass(id, l.alloc.Free(now)):
		if t, ok := l.alloc.Take(now); ok {
			l.line.Leave(id)
			if l.alloc.Free(now) < l.batch/2 {
				l.wanted = true
				l.wake()
			}
			return t, ""
		}
	}
	l.line.Join(id)
	switch {
	case l.resource.IsExhausted():
		return t, l.resource.Message()
	case l.counting != "":
		return t, fmt.Sprintf("the objects of %s can't be counted: %s", l.resource, l.counting)
	}
	l.wake()
	return t, "a deletion is being reserved in " + l.resource.String()
}

// name returns the kind and the name of the budget.
func (l *limiter) name() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resource.String()
}

// expired reports whether a token may no longer be used.
func (l *limiter) expired(t budget.Token) bool { return t.Expired(l.instant()) }

// settle records the outcome of a deletion.
func (l *limiter) settle(t budget.Token, outcome budget.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alloc.Settle(t, outcome, l.instant())
	if outcome == budget.Unused && l.line.Len() != 0 {
		l.wake()
	}
}

func (l *limiter) summary() Summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.resource
	return Summary{
		Budget: r.String(), Allowed: r.Limit().Max, Used: int(r.Status.Used),
		Waiting: l.line.Len(), Exhausted: r.IsExhausted(),
	}
}

// run reserves deletions until ctx ends.
func (l *limiter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.trigger:
		}
		timer.Reset(l.work(ctx))
	}
}

// idle is when a limiter looks again although nothing is to be done.
const idle = time.Hour

// work counts if that is needed, writes one status, and returns when to work again. Counting takes long, and waits for
// its turn elsewhere.
func (l *limiter) work(ctx context.Context) time.Duration {
	if !l.lead() {
		return idle
	}
	failed := l.count(ctx)
	if failed != nil {
		l.failed(ctx, "Could not count the objects of a deletion budget, retrying", failed)
	}
	if l.slots.Acquire(ctx, 1) != nil {
		return idle
	}
	defer l.slots.Release(1)
	if again := l.reserve(ctx); failed == nil {
		return again
	}
	return retryDelay
}

// lead reports whether this replica leads. The others delete nothing, and do not know what waits.
func (l *limiter) lead() bool {
	leads := l.options.Leading()
	l.mu.Lock()
	defer l.mu.Unlock()
	if leads && !l.leads {
		l.waited = l.instant().Mono // what waits becomes known now
	}
	l.leads = leads
	return leads
}

// reserve writes one status, and returns when to work again.
func (l *limiter) reserve(ctx context.Context) time.Duration {
	next, ok := l.propose()
	if !ok {
		return l.serve()
	}
	err := l.write(ctx, next)
	l.written(next, err)
	switch {
	case err == nil:
		return l.serve()
	case apierrors.IsNotFound(err):
		l.Refresh() // it was deleted
	}
	if failed := l.read(ctx); failed != nil {
		return l.failed(ctx, "Could not read a deletion budget, retrying", failed)
	}
	if !apierrors.IsConflict(err) {
		return l.failed(ctx, "Could not write the status of a deletion budget, retrying", err)
	}
	return 0
}

func (l *limiter) failed(ctx context.Context, text string, err error) time.Duration {
	if ctx.Err() == nil {
		l.options.Log.Error(err, text, "budget", l.name(), "delay", retryDelay)
	}
	return retryDelay
}

// read reads the resource again.
func (l *limiter) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	l.mu.Lock()
	r := budgetstore.New(l.resource.GetNamespace(), l.resource.GetName())
	uid := l.resource.GetUID()
	l.mu.Unlock()
	if err := l.options.Client.Get(ctx, client.ObjectKeyFromObject(r.Object), r.Object); err != nil {
		return err
	}
	if r.GetUID() != uid {
		l.Refresh() // another one of this name
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = r
	l.set(r)
	return nil
}

func (l *limiter) write(ctx context.Context, r budgetstore.Resource) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	l.mu.Lock()
	before := l.stored
	l.mu.Unlock()
	return l.options.Client.Status().Patch(ctx, r.Object, client.MergeFromWithOptions(before.Object, client.MergeFromWithOptimisticLock{}))
}

// written ends a write.
func (l *limiter) written(r budgetstore.Resource, err error) {
	l.mu.Lock()
	before := l.resource
	if l.writing = false; err == nil {
		l.stored, l.resource = r, r
		l.alloc.Commit()
	} else {
		l.alloc.Abandon()
	}
	if read := l.pending; read != nil {
		l.pending = nil
		l.update(*read)
	}
	l.mu.Unlock()
	switch {
	case err != nil:
	case r.IsExhausted() && !before.IsExhausted():
		l.options.Events.Event(r.Object, corev1.EventTypeWarning, eventExhausted, "deletions wait: "+r.Message())
	case before.IsExhausted() && !r.IsExhausted():
		l.options.Events.Event(r.Object, corev1.EventTypeNormal, eventAvailable, "deletions continue")
	}
}

// serve calls the deletions whose turn it is, and returns when to work again.
func (l *limiter) serve() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.instant()
	if l.observed && !l.resource.IsTripped() {
		l.calls.add(l.line.Call(l.alloc.Free(now), now))
	}
	again := idle
	next, counts := l.alloc.Next(now)
	if counts {
		again = min(again, max(next, settleDelay))
	}
	if l.line.Len() != 0 || l.resource.IsExhausted() {
		if again = min(again, statusDelay); counts {
			again = min(again, max(next, 10*time.Millisecond))
		}
	}
	if l.alloc.Unsettled(now) || l.alloc.Free(now) > 0 {
		again = min(again, settleDelay)
	}
	return again
}

// isInForce reports whether deletions may pass at some time.
func (l *limiter) isInForce() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.excess && l.problem == ""
}
