package collector

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/order"
)

// manyDependentsInterval is how often an owner with many dependents is looked at for the end of a wave.
const manyDependentsInterval = 2 * time.Second

// inOrder replaces the plan of an owner with a hold if its dependents are to be deleted in order: the owner keeps the hold
// until they are gone. When a wave starts, the dependents are queued.
//
// Before the next wave starts, a list has to show that nothing of the earlier waves is left. In companion
// mode, kinds that are in no wave are left to the built-in garbage collector. It doesn't apply a grace period, so if
// there is one, Gleaner deletes them too.
func (c *Collector) inOrder(ctx context.Context, id graph.ID, d *Decision) {
	if d.Situation.Kind != decide.Held {
		c.order.Forget(id)
		return
	}
	wanted, ordered := order.Of(d.Evaluation.Verdict)
	if ordered && d.Evaluation.EarlierPolicy == "" {
		if err := c.verifyServed(ctx, wanted); err != nil {
			d.Evaluation.Fault, d.Result.Fault = err, true
			d.Plan = decide.Plan{Reason: decide.PolicyFault, Message: err.Error(), Retry: true}
		}
	}
	switch {
	case d.Result.Fault: // whether there is an order or a grace period is not known
		c.order.Forget(id)
		return
	case !ordered || !carriesOut(d.Plan):
		c.order.Set(id, order.State{Wave: order.NotBegun})
		return
	}
	before, known := c.order.Get(id)
	if !known {
		before.Wave = order.NotBegun
	}
	current, end := wanted.Current(c.store.DependentsByKind(id)), len(wanted.Waves)+1
	if c.options.Companion && wanted.GracePeriodSeconds == nil {
		end--
	}
	switch {
	case current > max(before.Wave, 0) && !d.Facts.Confirmed:
		c.order.Set(id, order.State{Order: wanted, Wave: before.Wave})
		d.Plan = decide.Plan{Reason: decide.DependentsUnconfirmed, ConfirmDependents: true}
		if d.Facts.ConfirmError != "" {
			d.Plan = decide.Plan{Reason: decide.DependentsUnreadable, Retry: true}
		}
	case current < end:
		c.order.Set(id, order.State{Order: wanted, Wave: current})
		if current != before.Wave {
			c.store.Requeue(c.store.Dependents(id))
		}
		d.Plan = decide.Plan{Reason: decide.DependentsInOrder, Message: wanted.Describe(current) + " is being deleted"}
		if d.Facts.Dependents > graph.ManyDependents {
			d.Plan.RequeueAfter = manyDependentsInterval // no event shows the end of a wave
		}
		d.Facts.Blockers, d.Facts.Blocking = c.store.Blockers(id, func(kind schema.GroupKind) bool { return wanted.WaveOf(kind) <= current })
	default:
		c.order.Set(id, order.State{Order: wanted, Wave: current})
		if !c.options.Companion {
			d.Plan = decide.Plan{Reason: decide.HoldReleased, Action: decide.RemoveFinalizer{Object: d.Facts.Object, Finalizer: graph.Hold}}
		}
	}
}

// carriesOut reports whether a plan for an owner with a hold carries out what was decided about its
// dependents.
func carriesOut(plan decide.Plan) bool {
	switch action := plan.Action.(type) {
	case decide.Propagate:
		return true
	case decide.RemoveFinalizer:
		return action.Finalizer == graph.Hold
	default:
		return false
	}
}

// verifyServed returns an error for a kind in an order that is not served: a kind that is misspelled
// would have its objects deleted after all others.
func (c *Collector) verifyServed(ctx context.Context, o order.Order) error {
	for _, kind := range o.Kinds() {
		if _, served := c.options.Types.Catalog().Preferred(kind); served {
			continue
		}
		absent, err := c.options.Types.Absent(ctx, kind)
		switch {
		case err != nil:
			return fmt.Errorf("look for kind %s of the order: %w", kind, err)
		case absent:
			return fmt.Errorf("the order has kind %s, which is not served: write its kind and group as in kubectl api-resources, or remove it", kind)
		default:
			return fmt.Errorf("the order has kind %s, which is not discovered yet", kind)
		}
	}
	return nil
}

// queueOrdered queues objects that watch events show to be dependents of an owner that deletes its
// dependents in order.
func (c *Collector) queueOrdered(events ...graph.Event) {
	for _, e := range events {
		seen, ok := e.(graph.Seen)
		if !ok || seen.Object.Terminating {
			continue
		}
		if c.hasOrderedOwner(seen.Object) {
			c.store.Requeue([]graph.ID{graph.IDOf(seen.Object.UID)})
		}
	}
}

// hasOrderedOwner reports whether an owner of an object deletes its dependents in order.
func (c *Collector) hasOrderedOwner(o graph.Object) bool {
	return slices.ContainsFunc(o.Owners, func(ref metav1.OwnerReference) bool { return c.order.IsOrdered(graph.IDOf(ref.UID)) })
}

// OrderStatus returns the status of an owner's ordered deletion for dependents of a kind. It returns false if there
// is none.
func (c *Collector) OrderStatus(owner graph.ID, dependent schema.GroupKind) (order.Status, bool) {
	return c.order.StatusOf(owner, dependent)
}
