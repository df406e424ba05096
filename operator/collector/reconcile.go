package collector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

const (
	// maxAttempts is how often one call of Reconcile decides about an object that has
	// changed in the meantime.
	maxAttempts = 5

	// timeout limits the requests of one reconciliation, and so how long a shutdown waits
	// for it.
	timeout = 10 * time.Second

	// lapseRetry is when an object is reconciled again that could not be reconciled since
	// the lease was not renewed in time.
	lapseRetry = time.Second
)

// Reconcile decides whether an object is deleted in its current state, and carries the decision out.
func (c *Collector) Reconcile(ctx context.Context, id graph.ID) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, nil // shutdown: the next leader queues everything again
	}
	c.store.Begin(id)
	if state := c.options.Gate.State(); state.Probe != gate.Open || c.store.IsCanary(id) {
		return c.postpone(id, lapse(state)), nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	for range maxAttempts {
		step, err := c.step(ctx, id)
		switch {
		case err != nil:
			c.store.Finish(id, true)
			return reconcile.Result{}, err
		case step.postponed:
			return c.postpone(id, step.retry), nil
		case !step.again:
			return c.finish(id, step.plan), nil
		}
	}
	c.store.Finish(id, true) // a change ends the backoff (defect 3.28)
	return reconcile.Result{RequeueAfter: c.backoff.When(id)}, nil
}

// postpone returns when to reconcile an object again that could not be reconciled because
// the gate was closed, or a write has to wait. When the gate is opened, everything is queued
// again.
func (c *Collector) postpone(id graph.ID, retry time.Duration) reconcile.Result {
	c.store.Finish(id, false)
	c.backoff.Forget(id)
	return reconcile.Result{RequeueAfter: retry}
}

// lapse returns when to retry what was postponed for a closed gate: the end of a lapse is not
// published.
func lapse(s gate.State) time.Duration {
	if s.Lapsed {
		return lapseRetry
	}
	return 0
}

// finish returns when to reconcile an object again without an event.
func (c *Collector) finish(id graph.ID, plan decide.Plan) reconcile.Result {
	c.store.Finish(id, plan.Reason == decide.PolicyFault)
	if plan.Reason == decide.TooManyOwners {
		return reconcile.Result{RequeueAfter: c.parking.When(id)}
	}
	c.parking.Forget(id)
	if plan.RequeueAfter > 0 {
		c.backoff.Forget(id)
		return reconcile.Result{RequeueAfter: plan.RequeueAfter}
	}
	if !plan.Retry {
		if !plan.ConfirmDependents { // the confirmation may fail again
			c.backoff.Forget(id)
		}
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: c.backoff.When(id)}
}

// step is the result of one pass over an object.
type step struct {
	plan      decide.Plan
	again     bool // the object differs from the facts, and has been read again
	postponed bool // a write has to wait, such as one before which the gate was closed
	retry     time.Duration
}

// step is one pass over an object, from facts to a write: gather, classify, evaluate,
// choose, write, record.
func (c *Collector) step(ctx context.Context, id graph.ID) (step, error) {
	if view, ok := c.store.Lookup(id); ok && !c.hasOrderedOwner(view.Object) && c.Decider.IsIgnored(view.Object, c.memories.Get(id)) {
		c.memories.ForgetWait(id)
		c.parked.forget(id)
		return step{}, nil
	} else if ok && c.replaced.has(id, view.Object.ResourceVersion, c.options.Now()) {
		return step{plan: decide.Plan{RequeueAfter: replacedTimeout}}, nil
	}
	facts, ok := c.Gatherer.Gather(ctx, id)
	if !ok {
		c.forget(id)
		return step{}, nil
	}
	c.barrier.Consume(id)
	if c.parked.update(id, facts) {
		c.parking.Forget(id)
	}
	d, err := c.Decide(ctx, id, facts, nil)
	if err != nil {
		return step{}, err
	}
	if changed := d.Changed(); changed != nil {
		c.store.Apply(graph.Read{Object: *changed})
		return step{again: true}, nil
	}
	return c.carryOut(ctx, d)
}

// Decide decides about an object, and commits its Memory. There is no plan if the object
// differs from the facts. Given is the object, if it was read already.
func (c *Collector) Decide(ctx context.Context, id graph.ID, facts decide.Facts, given *unstructured.Unstructured) (Decision, error) {
	d, err := c.Decider.Decide(ctx, facts, given, c.memories.Get(id))
	c.options.Recorder.RecordWithheld(d.Withheld...)
	switch {
	case err != nil:
		return d, fmt.Errorf("evaluate policies for %s: %w", record.ObjectOf(facts.Object), err)
	case d.Changed() != nil:
		return d, nil
	}
	c.inOrder(ctx, id, &d)
	c.awaitObserved(ctx, id, &d)
	d.Plan = c.limit(d)
	d.Plan.RequeueAfter = c.memories.Commit(id, d)
	return d, nil
}

// CarryOut carries out a decision, and requeues its object.
func (c *Collector) CarryOut(ctx context.Context, d Decision) error {
	_, err := c.carryOut(ctx, d)
	c.store.Requeue([]graph.ID{graph.IDOf(d.Facts.Object.UID)})
	return err
}

// carryOut carries out a decision. If the gate is closed, its object is postponed: at once, or
// when a write is stopped.
func (c *Collector) carryOut(ctx context.Context, d Decision) (step, error) {
	if d.Plan.ConfirmDependents {
		c.barrier.Request(graph.IDOf(d.Facts.Object.UID))
	}
	if !c.options.Gate.IsOpen() {
		return step{postponed: true, retry: lapseRetry}, nil // no dependents are listed, and nothing is recorded
	}
	done, err := c.writeAll(ctx, d)
	if writer.IsWait(err) {
		return step{postponed: true, retry: writer.RetryAfter(err, lapseRetry)}, nil
	}
	return done, err
}

// writeAll writes what was decided, to the dependents first, and records it. Nothing is
// recorded of a write that has to wait.
func (c *Collector) writeAll(ctx context.Context, d Decision) (step, error) {
	plan := d.Plan
	if err := c.applyExceptions(ctx, plan, d.Evaluation); err != nil {
		return step{}, err
	}
	if err := c.orphanDependents(ctx, plan); err != nil {
		return step{}, err
	}
	result, err := c.write(ctx, plan.Action, causeOf(d.Facts, plan, d.Evaluation))
	if writer.IsWait(err) {
		return step{}, err
	}
	c.options.Recorder.Record(Outcome{Facts: d.Facts, Plan: plan, Evaluation: d.Evaluation, Result: result, Err: err, Duration: c.options.Now().Sub(d.Began)})
	if err != nil {
		return step{}, err
	}
	if o := d.Facts.Object; result == act.Done && d.Situation.Kind == decide.Held && !isFollowed(plan) && plan.Action != nil {
		c.replaced.add(graph.IDOf(o.UID), o.ResourceVersion, c.options.Now())
	}
	if _, saves := plan.Action.(decide.SaveState); saves && result == act.Done && !isFollowed(plan) {
		c.store.Requeue([]graph.ID{graph.IDOf(d.Facts.Object.UID)}) // whether the watch or the response is first
	}
	return step{plan: plan, again: result == act.Changed || result == act.Done && isFollowed(plan)}, c.refresh(ctx, plan, result)
}

// isFollowed reports whether a write is followed by another one that no event may cause:
// the graph doesn't distinguish state annotations.
func isFollowed(plan decide.Plan) bool {
	_, saves := plan.Action.(decide.SaveState)
	return saves && plan.Reason == decide.PropagationDecided
}

// refresh reads an object again if a write has shown that the graph is outdated.
func (c *Collector) refresh(ctx context.Context, plan decide.Plan, result act.Result) error {
	object, ok := decide.Target(plan.Action)
	if !ok || result != act.Changed && result != act.AlreadyGone {
		return nil
	}
	return c.Gatherer.Refresh(ctx, object)
}

// forget forgets an object that is absent.
func (c *Collector) forget(id graph.ID) {
	c.memories.Forget(id)
	c.order.Forget(id)
	c.deletions.Forget(id)
	c.parked.forget(id)
	c.parking.Forget(id)
	c.replaced.forget(id)
}
