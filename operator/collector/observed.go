package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/observe"
	"github.com/gleaner-dev/gleaner/policies"
)

// awaitObserved replaces a plan for an owner that orphans dependents as long as the owner's controller may
// still adopt some, since it has not observed the deletion. That is limited by the timeout.
func (c *Collector) awaitObserved(ctx context.Context, id graph.ID, d *Decision) {
	o := d.Facts.Object
	if !c.orphans(*d) || c.isObserved(id, o.Kind.GroupKind()) {
		return
	}
	observed, err := c.readObserved(ctx, o)
	if observed {
		c.settle(id)
		return
	}
	after, expired := c.deletions.Wait(id, c.options.Now(), c.options.ObserveTimeout)
	message := fmt.Sprintf("its controller has not reported the deletion in status.observedGeneration yet, and has %s for it", c.options.ObserveTimeout)
	if expired {
		message = fmt.Sprintf("its controller has not reported the deletion in status.observedGeneration within %s: it may adopt dependents again, which are then deleted", c.options.ObserveTimeout)
	}
	if err != nil {
		message = err.Error()
	}
	if !expired {
		d.Plan = decide.Plan{Reason: decide.DeletionNotObserved, Message: message, RequeueAfter: after}
		return
	}
	d.Plan = decide.Plan{Reason: decide.ObserveTimedOut, Message: message}
	c.settle(id)
	c.store.Requeue([]graph.ID{id})
}

// settle has the dependents of an owner orphaned.
func (c *Collector) settle(id graph.ID) {
	c.deletions.Settle(id)
	if !c.options.Companion {
		c.store.Requeue(c.store.Dependents(id))
	}
}

// isObserved reports whether the dependents of an owner that is being deleted may be orphaned. No
// controller reports the generation that it has observed of a type without status.
func (c *Collector) isObserved(owner graph.ID, kind schema.GroupKind) bool {
	if c.options.ObserveTimeout <= 0 || c.deletions.IsSettled(owner) {
		return true
	}
	resource, served := c.options.Types.Catalog().Preferred(kind)
	return !served || !resource.HasStatus
}

// orphans reports whether a plan, or what is decided about the dependents of the owner next, orphans some. In
// companion mode, the built-in garbage collector does it if Gleaner requests it.
func (c *Collector) orphans(d Decision) bool {
	o := d.Facts.Object
	if !o.Terminating {
		return false
	}
	if o.Orphan && !o.Held {
		return !c.options.Companion
	}
	switch action := d.Plan.Action.(type) {
	case decide.Propagate:
		return action.Propagation == metav1.DeletePropagationOrphan || hasOrphanException(d.Evaluation.Verdict)
	case decide.RemoveFinalizer:
		return action.Finalizer == graph.Hold && !c.options.Companion && (o.Orphan || hasOrphanException(d.Evaluation.Verdict))
	default:
		return false
	}
}

func hasOrphanException(v hostabi.Verdict) bool {
	return slices.ContainsFunc(v.Dependents, func(e hostabi.DependentDecision) bool { return e.Decision == hostabi.DecisionOrphan })
}

var errNotRead = errors.New("it could not be read")

// readObserved reads an object, and reports whether its deletion was observed. One that is gone has
// no controller any more.
func (c *Collector) readObserved(ctx context.Context, o graph.Object) (bool, error) {
	resource, served := c.options.Types.Catalog().Preferred(o.Kind.GroupKind())
	if !served {
		return false, errNotRead
	}
	live, err := c.options.Reader.Get(ctx, policies.ServiceAccount{}, resource.Version, o.Namespace, o.Name)
	if err != nil {
		return false, fmt.Errorf("%w to see whether its controller has observed the deletion: %w", errNotRead, err)
	}
	return live.GetUID() != o.UID || observe.HasObserved(live), nil
}
