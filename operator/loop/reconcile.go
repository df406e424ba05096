package loop

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const (
	// attempts is how often one call of Reconcile judges an object anew that
	// turned out to be other than it was judged.
	attempts = 5

	// grace bounds the calls of one reconciliation, and so how long the end of
	// the process waits for work in hand.
	grace = 10 * time.Second
)

// Reconcile does what is to be done about one object, as it is now.
func (l *Loop) Reconcile(ctx context.Context, id graph.ID) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, nil // the end has come: what is queued is left to whoever leads next
	}
	l.known.take(id)
	if l.gate.get() != Open || l.known.isOurs(id) {
		l.known.settle(id, false)
		l.backoff.Forget(id)
		return reconcile.Result{}, nil // the gate's opening queues everything again
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	for range attempts {
		if l.gate.get() != Open {
			break // it was shut in between
		}
		step, err := l.step(ctx, id)
		if err != nil {
			l.known.settle(id, true)
			return reconcile.Result{}, err
		}
		if !step.again {
			return l.finish(id, step.plan), nil
		}
	}
	l.known.settle(id, false)
	return reconcile.Result{RequeueAfter: l.backoff.When(id)}, nil
}

// finish says when an object is to be looked at again of itself.
func (l *Loop) finish(id graph.ID, plan decide.Plan) reconcile.Result {
	l.known.settle(id, plan.Reason == decide.PolicyAtFault)
	if plan.Reason == decide.TooManyOwners {
		return reconcile.Result{RequeueAfter: l.parking.When(id)}
	}
	l.parking.Forget(id)
	if plan.After > 0 {
		l.backoff.Forget(id)
		return reconcile.Result{RequeueAfter: plan.After}
	}
	if !plan.Retry {
		if !plan.Confirm { // what comes of that may be a failure once more
			l.backoff.Forget(id)
		}
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: l.backoff.When(id)}
}

// step is what one pass over an object came to.
type step struct {
	plan  decide.Plan
	again bool // the object was other than judged: it has been read again
}

// step takes one object from facts to a write: gather, classify, consult,
// choose, act, record.
func (l *Loop) step(ctx context.Context, id graph.ID) (step, error) {
	if l.leaves(id) {
		l.waits.forget(id)
		l.parked.forget(id)
		return step{}, nil
	}
	facts, ok := l.gatherer.Gather(ctx, id)
	if !ok {
		l.forget(id)
		return step{}, nil
	}
	if l.parked.note(id, facts) {
		l.parking.Forget(id)
	}
	d, err := l.decide(ctx, id, facts, nil)
	if err != nil {
		return step{}, err
	}
	if d.opinion.Changed != nil {
		l.known.Apply(graph.Read{Object: *d.opinion.Changed})
		return step{again: true}, nil
	}
	return l.carryOut(ctx, d)
}

// decision is what was decided about one object, and what it rests on.
type decision struct {
	began   time.Time
	facts   decide.Facts
	opinion consult.Opinion
	plan    decide.Plan
}

// staying are the situations in which nobody deletes an object but a client, of which a
// policy is to be told.
var staying = []decide.Kind{decide.Settled, decide.OwnerUnreadable, decide.OwnerNeverFound}

// decide takes facts to a plan. There is none if the object turned out to be another
// than judged. Given is the object, if somebody has read it already.
func (l *Loop) decide(ctx context.Context, id graph.ID, facts decide.Facts, given *unstructured.Unstructured) (decision, error) {
	d := decision{began: l.now(), facts: facts}
	situation := decide.Classify(facts)
	opinion, judgement, err := l.consult(ctx, id, situation, given)
	if err != nil {
		return d, fmt.Errorf("consult policies for %s: %w", record.ObjectOf(facts.Object), err)
	}
	if d.opinion = opinion; opinion.Changed != nil {
		return d, nil
	}
	if l.options.Beside {
		d.plan = decide.Beside(situation, judgement)
		l.kept.note(id, situation, judgement, d.plan)
	} else {
		d.plan = decide.Choose(situation, judgement)
	}
	d.plan = l.limit(opinion, judgement, d.plan)
	if d.plan.Action == nil && slices.Contains(staying, situation.Kind) {
		d.plan = l.keep(ctx, facts, d.plan)
	}
	if d.plan.After > 0 || situation.Kind == decide.Ownerless || situation.Kind == decide.Held {
		d.plan.After = l.waits.schedule(id, d.plan, judgement.Attempt, d.began)
	}
	return d, nil
}

// carryOut does what was decided.
func (l *Loop) carryOut(ctx context.Context, d decision) (step, error) {
	plan := d.plan
	if plan.Confirm {
		l.barrier.Ask(graph.IDOf(d.facts.Object.UID))
	}
	if l.gate.get() != Open {
		return step{}, nil // shut while this was found out
	}
	if err := l.except(ctx, plan, d.opinion); err != nil {
		return step{}, err
	}
	if err := l.leave(ctx, plan); err != nil {
		return step{}, err
	}
	result, err := l.actor.Do(ctx, plan.Action)
	l.note(d.facts, plan, d.opinion, outcome{result: result, err: err, took: l.now().Sub(d.began)})
	if err != nil {
		return step{}, err
	}
	return step{plan: plan, again: result == act.Changed || result == act.Done && leadsOn(plan)}, l.learn(ctx, plan, result)
}

// leadsOn reports whether a write is followed by another one that the watch may not
// bring about: to the graph one memo is like another.
func leadsOn(plan decide.Plan) bool {
	_, remembers := plan.Action.(decide.Remember)
	return remembers && plan.Reason == decide.PropagationDecided
}

// learn makes up for what a write showed the graph not to know.
func (l *Loop) learn(ctx context.Context, plan decide.Plan, result act.Result) error {
	object, ok := decide.Target(plan.Action)
	if !ok || result != act.Changed && result != act.Already {
		return nil
	}
	return l.gatherer.Reread(ctx, object)
}
