package loop

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gleaner-dev/gleaner/operator/act"
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
	began := l.now()
	facts, ok := l.gatherer.Gather(ctx, id)
	if !ok {
		return step{}, nil
	}
	situation := decide.Classify(facts)
	opinion, judgement, err := l.consult(ctx, id, situation)
	if err != nil {
		return step{}, fmt.Errorf("consult policies for %s: %w", record.ObjectOf(facts.Object), err)
	}
	if opinion.Changed != nil {
		l.known.Apply(graph.Read{Object: *opinion.Changed})
		return step{again: true}, nil
	}
	plan := decide.Choose(situation, judgement)
	if plan.Action == nil && situation.Kind == decide.Settled {
		plan = l.keep(ctx, facts, plan)
	}
	if plan.After > 0 || situation.Kind == decide.Ownerless || situation.Kind == decide.Held {
		plan.After = l.waits.schedule(id, plan, l.waits.attempt(id, began), began)
	}
	if plan.Confirm {
		l.barrier.Ask(id)
	}
	if l.gate.get() != Open {
		return step{}, nil // shut while this was found out
	}
	if err := l.except(ctx, plan, opinion); err != nil {
		return step{}, err
	}
	result, err := l.actor.Do(ctx, plan.Action)
	l.note(facts, plan, opinion, outcome{result: result, err: err, took: l.now().Sub(began)})
	if err != nil {
		return step{}, err
	}
	return step{plan: plan, again: result == act.Changed}, l.learn(ctx, plan, result)
}

// learn makes up for what a write showed the graph not to know.
func (l *Loop) learn(ctx context.Context, plan decide.Plan, result act.Result) error {
	object, ok := decide.Target(plan.Action)
	if !ok || result != act.Changed && result != act.Already {
		return nil
	}
	return l.gatherer.Reread(ctx, object)
}
