package gather

import (
	"slices"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// maxAncestors is how many owners of owners are looked at for a grace period.
const maxAncestors = 32

// inOrder changes the status of an owner whose dependents are deleted in order: it waits for the
// object once it is the turn of the object's kind, and keeps it until then. An owner that waits passes on
// the grace period that was decided above it.
func (g *Gatherer) inOrder(view graph.View, owner decide.Owner) decide.Owner {
	if g.Order == nil || view.Object.Terminating {
		return owner
	}
	id := graph.IDOf(owner.Reference.UID)
	if turn, ordered := g.Order.TurnOf(id, view.Object.Kind.GroupKind()); ordered && owner.Status == decide.Present {
		owner.Message, owner.Ordered = turn.Message, true
		if turn.Due {
			owner.Status = decide.Waiting
		}
	}
	if owner.Status == decide.Waiting {
		g.inheritGracePeriod(id, &owner)
	}
	return owner
}

// inheritGracePeriod sets the grace period that was decided for everything below an ancestor of an
// object: the longest, if there are several. The object is kept as long as it is not known.
func (g *Gatherer) inheritGracePeriod(id graph.ID, owner *decide.Owner) {
	ancestors := []graph.ID{id}
	for i := 0; i < len(ancestors) && i < maxAncestors; i++ {
		state, known := g.Order.Get(ancestors[i])
		if !known && g.Graph.IsHeldTerminating(ancestors[i]) {
			owner.Status, owner.Message = decide.Unknown, "it is not known yet whether a policy sets the grace period of everything below an owner that is being deleted"
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
