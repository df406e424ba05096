package budgeter

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/budget"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// minBatch and maxBatch are the number of deletions that are reserved at once. It doubles while they are used up,
	// and is halved when some of them expire.
	minBatch, maxBatch = 8, 512

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

// keeper reserves the deletions of one budget.
type keeper struct {
	*Budgeter
	key     string // see sorted
	stop    context.CancelFunc
	trigger chan struct{} // capacity 1: something has to be reserved or written

	mu       sync.Mutex           // covers what follows
	resource budgetstore.Resource // as it was read or written last; never changed
	policy   *policies.Policy
	problem  string // why nothing is deleted; "": none
	excess   bool   // there are too many budgets
	alloc    *budget.Allocator
	observed bool // the allocator has the ledger and the limit
	line     budget.Line[graph.ID]
	batch    int  // deletions to reserve at once
	wanted   bool // more deletions have to be reserved, although none waits

	writing bool                  // a status is being written
	pending *budgetstore.Resource // what was read meanwhile
	counted time.Time             // when the number of waiting deletions was written
}

func newKeeper(b *Budgeter, r budgetstore.Resource) *keeper {
	return &keeper{
		Budgeter: b, key: r.GetNamespace() + "/" + r.GetName(), stop: func() {}, trigger: make(chan struct{}, 1),
		alloc: budget.NewAllocator(b.options.ID), batch: minBatch,
	}
}

// end stops the keeper of a budget that was deleted. What has waited for it is decided again.
func (k *keeper) end() {
	k.stop()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls.add(k.line.Clear())
}

// wake has the keeper look for what is to be done.
func (k *keeper) wake() {
	select {
	case k.trigger <- struct{}{}:
	default:
	}
}

// knows reports whether a state of the resource is the current one or an earlier one.
func (k *keeper) knows(version string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(version, k.resource.GetResourceVersion())
	return err == nil && order <= 0
}

// observe sets the resource as it was read.
func (k *keeper) observe(r budgetstore.Resource, excess bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.excess = excess; k.writing {
		k.pending = &r // it may be what is being written, whose tokens can be taken only if the allocator knows that
		return
	}
	k.update(r)
}

// update sets the resource unless it is outdated. The caller holds mu.
func (k *keeper) update(r budgetstore.Resource) {
	if k.resource.Object != nil {
		order, err := resourceversion.CompareResourceVersion(r.GetResourceVersion(), k.resource.GetResourceVersion())
		if err == nil && order <= 0 {
			return
		}
	}
	k.set(r)
	k.wake()
}

// set sets the resource. The caller holds mu.
func (k *keeper) set(r budgetstore.Resource) {
	if k.policy == nil || k.resource.GetGeneration() != r.GetGeneration() {
		k.problem = ""
		var err error
		if k.policy, err = r.Selection(); err != nil {
			k.problem = err.Error()
		} else if r.Spec.Window.Duration <= 0 {
			k.problem = "window is not positive: write a duration from 10s to 168h"
		}
	}
	k.resource = r
	if k.observed = k.problem == "" && !k.needsFirstCount(); k.observed {
		k.alloc.Observe(r.Ledger(), r.Limit(), k.instant())
	}
}

// needsFirstCount reports whether there is no count for a percentage.
func (k *keeper) needsFirstCount() bool {
	m := k.resource.Status.Matching
	return k.resource.Percentage() != 0 && (m == nil || m.Generation != k.resource.GetGeneration())
}

// selection returns the policy that selects the same objects.
func (k *keeper) selection() *policies.Policy {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.policy
}

// take takes a token for the deletion of an object. Without one, the object waits, for the reason that is returned.
func (k *keeper) take(id graph.ID) (t budget.Token, waits string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.instant()
	switch {
	case k.excess:
		return t, fmt.Sprintf("%s is not in force: there are more than %d budgets in its namespace or the cluster: remove some", k.resource, limitOf(k.resource.GetNamespace()))
	case k.problem != "":
		return t, fmt.Sprintf("%s is not in force: %s", k.resource, k.problem)
	case k.observed && !k.resource.IsTripped() && k.line.MayPass(id, k.alloc.Free(now)):
		if t, ok := k.alloc.Take(now); ok {
			k.line.Leave(id)
			if k.alloc.Free(now) < k.batch/2 {
				k.wanted = true
				k.wake()
			}
			return t, ""
		}
	}
	k.line.Join(id)
	if k.resource.IsExhausted() {
		return t, k.resource.Message()
	}
	k.wake()
	return t, "a deletion is being reserved in " + k.resource.String()
}

// name returns the kind and the name of the budget.
func (k *keeper) name() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.resource.String()
}

// expired reports whether a token may no longer be used.
func (k *keeper) expired(t budget.Token) bool { return t.Expired(k.instant()) }

// settle records the outcome of a deletion.
func (k *keeper) settle(t budget.Token, outcome budget.Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.alloc.Settle(t, outcome, k.instant())
	if outcome == budget.Unused && k.line.Len() != 0 {
		k.wake()
	}
}

func (k *keeper) summary() Summary {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.resource
	return Summary{
		Budget: r.String(), Allowed: r.Limit().Max, Used: int(r.Status.Used),
		Waiting: k.line.Len(), Exhausted: r.IsExhausted(),
	}
}

// run reserves deletions until ctx ends.
func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.trigger:
		}
		if k.slots.Acquire(ctx, 1) != nil {
			return
		}
		again := k.work(ctx)
		k.slots.Release(1)
		timer.Reset(again)
	}
}

// idle is when a keeper looks again although nothing is to be done.
const idle = time.Hour

// work writes one status, and returns when to work again.
func (k *keeper) work(ctx context.Context) time.Duration {
	if err := k.count(ctx); err != nil {
		return k.failed(ctx, "Could not count the objects of a deletion budget, retrying", err)
	}
	next, ok := k.propose()
	if !ok {
		return k.serve()
	}
	err := k.write(ctx, next)
	k.written(next, err)
	switch {
	case err == nil:
		return k.serve()
	case apierrors.IsNotFound(err):
		k.Refresh() // it was deleted
	}
	if failed := k.read(ctx); failed != nil {
		return k.failed(ctx, "Could not read a deletion budget, retrying", failed)
	}
	if !apierrors.IsConflict(err) {
		return k.failed(ctx, "Could not write the status of a deletion budget, retrying", err)
	}
	return 0
}

func (k *keeper) failed(ctx context.Context, text string, err error) time.Duration {
	if ctx.Err() == nil {
		k.options.Log.Error(err, text, "budget", k.name(), "delay", retryDelay)
	}
	return retryDelay
}

// read reads the resource again.
func (k *keeper) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	k.mu.Lock()
	r := budgetstore.New(k.resource.GetNamespace(), k.resource.GetName())
	uid := k.resource.GetUID()
	k.mu.Unlock()
	if err := k.options.Client.Get(ctx, client.ObjectKeyFromObject(r.Object), r.Object); err != nil {
		return err
	}
	if r.GetUID() != uid {
		k.Refresh() // another one of this name
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(r)
	return nil
}

func (k *keeper) write(ctx context.Context, r budgetstore.Resource) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return k.options.Client.Status().Update(ctx, r.Object)
}

// written ends a write.
func (k *keeper) written(r budgetstore.Resource, err error) {
	k.mu.Lock()
	before := k.resource
	if k.writing = false; err == nil {
		k.resource = r
		k.alloc.Commit()
	} else {
		k.alloc.Abandon()
	}
	if read := k.pending; read != nil {
		k.pending = nil
		k.update(*read)
	}
	k.mu.Unlock()
	switch {
	case err != nil:
	case r.IsExhausted() && !before.IsExhausted():
		k.options.Events.Event(r.Object, corev1.EventTypeWarning, "BudgetExhausted", "deletions wait: "+r.Message())
	case before.IsExhausted() && !r.IsExhausted():
		k.options.Events.Event(r.Object, corev1.EventTypeNormal, "BudgetAvailable", "deletions continue")
	}
}

// serve calls the deletions whose turn it is, and returns when to work again.
func (k *keeper) serve() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.instant()
	if k.observed && !k.resource.IsTripped() {
		k.calls.add(k.line.Call(k.alloc.Free(now), now))
	}
	again := idle
	next, counts := k.alloc.Next(now)
	if counts {
		again = min(again, max(next, settleDelay))
	}
	if k.line.Len() != 0 {
		if again = min(again, statusDelay); counts {
			again = min(again, max(next, 10*time.Millisecond))
		}
	}
	if k.alloc.Unsettled(now) || k.alloc.Free(now) > 0 {
		again = min(again, settleDelay)
	}
	return again
}

// count counts the objects that a percentage refers to, if that is needed.
func (k *keeper) count(ctx context.Context) error {
	k.mu.Lock()
	needed, policy := k.needsCount(), k.policy
	generation := k.resource.GetGeneration()
	k.mu.Unlock()
	if !needed {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	n, err := k.options.Count(ctx, policy)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.resource.GetGeneration() != generation {
		return nil
	}
	if err != nil {
		k.observed = false
		return err
	}
	counted := k.resource.DeepCopy()
	counted.Status.Matching = &v1alpha1.MatchingObjects{Count: n, Time: metav1.NewMicroTime(k.options.Now()), Generation: generation}
	k.set(counted)
	return nil
}

// needsCount reports whether the objects have to be counted now. The caller holds mu.
func (k *keeper) needsCount() bool {
	m, window := k.resource.Status.Matching, k.resource.Spec.Window.Duration
	switch {
	case k.problem != "" || k.resource.Percentage() == 0:
		return false
	case k.needsFirstCount():
		return true
	}
	age := k.options.Now().Sub(m.Time.Time)
	if k.line.Len() == 0 && !k.wanted {
		return false // nothing is to be deleted
	}
	return age < 0 || age >= window || k.resource.Ledger().Used() == 0 && age >= max(window/countShare, minCountAge)
}

// propose returns the next status, which has to be written; false if it is the current one.
func (k *keeper) propose() (r budgetstore.Resource, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, reserved := k.instant(), 0
	r = k.resource.DeepCopy()
	resumed := r.IsResumed()
	switch {
	case !k.observed:
	case resumed:
		k.alloc.Observe(forgiven(r.Ledger(), now), r.Limit(), now)
		fallthrough
	default:
		var l budget.Ledger
		l, reserved = k.alloc.Propose(k.want(now, resumed), now)
		r.SetLedger(l)
		r.Status.Allowed = int32(r.Limit().Max) //nolint:gosec // at most a million, or a part of an int32
	}
	if waiting := int32(k.line.Len()); now.Wall.Sub(k.counted) >= statusDelay || waiting == 0 { //nolint:gosec // at most MaxLine
		r.Status.Waiting = waiting
	}
	r.Status.ObservedGeneration = r.GetGeneration()
	k.setConditions(r, now, resumed, reserved)
	if apiequality.Semantic.DeepEqual(r.Status, k.resource.Status) {
		k.alloc.Abandon()
		return r, false
	}
	if r.Status.Waiting != k.resource.Status.Waiting {
		k.counted = now.Wall
	}
	k.writing = true
	return r, true
}

// forgiven returns a ledger without former deletions. Those that may still be under way count.
func forgiven(l budget.Ledger, now budget.Instant) (recent budget.Ledger) {
	for _, b := range l.Batches {
		if age := now.Wall.Sub(b.At); age < budget.Lifetime+budget.MaxSkew {
			recent.Batches = append(recent.Batches, b)
		}
	}
	return recent
}

// want returns how many deletions to reserve. The caller holds mu.
func (k *keeper) want(now budget.Instant, resumed bool) int {
	free, waiting := k.alloc.Free(now), k.line.Len()
	if k.resource.IsTripped() && !resumed {
		return 0
	}
	switch {
	case k.wanted:
		k.batch = min(2*k.batch, maxBatch)
	case waiting == 0:
		k.batch = max(k.batch/2, minBatch)
		return 0
	}
	k.wanted = false
	return max(min(max(waiting, k.batch), maxBatch)-free, 0)
}

// setConditions sets the conditions. The caller holds mu.
func (k *keeper) setConditions(r budgetstore.Resource, now budget.Instant, resumed bool, reserved int) {
	accepted := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted", "deletions of the selected objects are limited")
	switch {
	case k.excess:
		accepted = condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "TooMany",
			fmt.Sprintf("there are more than %d budgets, and nothing that this one selects is deleted: remove some", limitOf(r.GetNamespace())))
	case k.problem != "":
		accepted = condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid", fmt.Sprintf("%s. Nothing that it selects is deleted", k.problem))
	}
	waits := k.observed && k.line.Len() != 0 && reserved == 0 && k.alloc.Free(now) == 0
	was := r.IsExhausted() && !resumed
	if !was && waits {
		r.Status.Exhaustions++
	}
	exhausted := condition(v1alpha1.ConditionExhausted, metav1.ConditionFalse, v1alpha1.ReasonAvailable, "no deletion waits")
	if waits || was && (r.IsTripped() || k.line.Len() != 0) {
		exhausted = condition(v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonWaiting, "deletions wait until earlier ones have left the window")
		if r.Trips() {
			exhausted = condition(v1alpha1.ConditionExhausted, metav1.ConditionTrue, v1alpha1.ReasonTripped, fmt.Sprintf(
				"nothing more is deleted until a person resumes: gleaner resume %s, or kubectl annotate --overwrite with %s=%d", r.ResumeArgs(), v1alpha1.ResumeAnnotation, r.Status.Exhaustions))
		}
	}
	for _, c := range []metav1.Condition{accepted, exhausted} {
		c.ObservedGeneration, c.LastTransitionTime = r.GetGeneration(), metav1.NewTime(now.Wall).Rfc3339Copy()
		apimeta.SetStatusCondition(&r.Status.Conditions, c)
	}
}

// isInForce reports whether deletions may pass at some time.
func (k *keeper) isInForce() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.excess && k.problem == ""
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
