package gather

import (
	"slices"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// maxAncestors is how many owners of owners are looked at for a grace period.
const maxAncestors = 32

// inOrder changes the status of an owner whose dependents are deleted in order. The owner is Present until the wave of
// the object's kind starts, and Waiting from then on. A Waiting owner also passes on the grace period of its own owners.
func (g *Gatherer) inOrder(view graph.View, owner decide.Owner) decide.Owner {
	if g.Order == nil || view.Object.Terminating {
		return owner
	}
	id := graph.IDOf(owner.Reference.UID)
	if status, ordered := g.Order.StatusOf(id, view.Object.Kind.GroupKind()); ordered && owner.Status == decide.Present {
		owner.Message, owner.Ordered = status.Message, true
		if status.Started {
			owner.Status = decide.Waiting
		}
	}
	if owner.Status == decide.Waiting {
		g.inheritGracePeriod(id, &owner)
	}
	return owner
}

// inheritGracePeriod sets the grace period that a policy of an ancestor has set for everything below it. If several do, the
// longest applies. If it is unknown whether a policy does, the object is kept.
func (g *Gatherer) inheritGracePeriod(id graph.ID, owner *decide.Owner) {
	ancestors := []graph.ID{id}
	for i := 0; i < len(ancestors) && i < maxAncestors; i++ {
		state, known := g.Order.Get(ancestors[i])
		if !known && g.Graph.IsHeldTerminating(ancestors[i]) {
			owner.Status, owner.Message = decide.Unknown, "an owner above it is being deleted, and it is not known yet whether a policy sets the grace period"
			return
		}
		if seconds := state.Order.GracePeriodSeconds; seconds != nil && (owner.GracePeriodSeconds == nil || *seconds > *owner.GracePeriodSeconds) {
			owner.GracePeriodSeconds = seconds
		}
		g.Graph.Owners(ancestors[i], func(above graph.ID) bool {
			if !slices.Contains(ancestors, above) {
				ancestors = append(ancestors, above)
			}
			return len(ancestors) < maxAncestors
		})
	}
}
