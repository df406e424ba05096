package decide

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// collectorTimeout is how long the built-in garbage collector has to delete an object
// before Gleaner does. After the webhook has denied its request, it may not retry for a
// long time.
const collectorTimeout = 10 * time.Second

// orphanTimeout is how long the built-in garbage collector has to orphan an object's
// dependents before Gleaner requests that again. It acts on the change of the object, and so
// overlooks a second request if its watch shows only the state after it, as after a restart
// of the API server.
const orphanTimeout = 30 * time.Second

// ChooseCompanion returns the plan for a situation in companion mode. It is the plan of Choose,
// limited to what policies decide; the rest is left to the built-in garbage collector.
// Without policies, nothing is written.
func ChooseCompanion(s Situation, j PolicyResult) Plan {
	switch s.Kind {
	case Settled:
		return settled(s)
	case Ownerless:
		return collectCompanion(s, j)
	case PartlyOwned: // the built-in garbage collector removes references to owners that it regards as gone
		if s.Facts.inOrder() {
			return choose(s, j)
		}
		return Plan{}
	case Held:
		return ignoringChanges(s.Facts.Object, propagateCompanion(s, j))
	default:
		return Plan{}
	}
}

// ignoringChanges makes a plan remove a hold regardless of the resourceVersion if the client's
// request specified a propagation policy. Meanwhile the built-in garbage collector carries
// it out and removes its finalizer: then the object would look as if the client had
// specified nothing, and the policy would be evaluated after all.
func ignoringChanges(o graph.Object, p Plan) Plan {
	if r, ok := p.Action.(RemoveFinalizer); ok && r.Finalizer == graph.Hold && (o.Orphan || o.Foreground) {
		r.IgnoreChanges = true
		p.Action = r
	}
	return p
}

// collectCompanion deletes only what the built-in garbage collector would not delete, or
// would delete in another way, or what the webhook may have kept it from deleting.
func collectCompanion(s Situation, j PolicyResult) Plan {
	if j.Fault && !j.Enforced {
		return Plan{Retry: true} // policies are not known yet: until then, the webhook denies requests
	}
	plan := collect(s, j)
	if _, deletes := plan.Action.(Delete); !deletes || j.KeptBefore || s.Facts.Object.HasState || s.Facts.inOrder() {
		return plan
	}
	switch {
	case j.Enforced && !j.MatchesDefault, (j.Enforced || j.MaybeDenied) && j.Attempt > 1:
		return plan
	case j.Enforced:
		return Plan{Reason: LeftToCollector, RequeueAfter: collectorTimeout}
	case j.Monitored:
		return Plan{Reason: LeftToCollector}
	case j.MaybeDenied:
		return Plan{RequeueAfter: collectorTimeout} // no reason: no policy governs it
	default:
		return Plan{}
	}
}

// propagateCompanion leaves the propagation that was decided to the built-in garbage
// collector. Orphaning cannot be left to it entirely: it does not see dependents that were
// just created, and would delete them later (G-69). So the hold stays until a list shows
// that no dependent is left; until then, orphaning is requested again.
func propagateCompanion(s Situation, j PolicyResult) Plan {
	o, release := s.Facts.Object, Plan{Reason: HoldReleased, Action: RemoveFinalizer{Object: s.Facts.Object, Finalizer: graph.Hold}}
	decided := propagations[propagationOf(j)]
	switch {
	case j.Fault:
		return propagate(s, j)
	case !j.ByPolicy && decided != "" && decided == s.Facts.CarriedOut:
		return onceConfirmed(s.Facts, release)
	case !j.ByPolicy:
		return propagate(s, j)
	case decided == metav1.DeletePropagationForeground && !j.mustSaveState(o) && s.Facts.Blocking == 0:
		return release // all blocking dependents are gone
	case decided != metav1.DeletePropagationOrphan:
		return propagate(s, j)
	case j.mustSaveState(o):
		return Plan{Reason: PropagationDecided, Action: SaveState{Object: o, State: j.State}}
	case o.Orphan && j.Attempt > 1:
		return Plan{Reason: PropagationDecided, Action: RemoveFinalizer{Object: o, Finalizer: metav1.FinalizerOrphanDependents}}
	case o.Orphan:
		return Plan{Reason: LeftToCollector, RequeueAfter: orphanTimeout}
	case s.Facts.Dependents != 0:
		return Plan{Reason: PropagationDecided, Action: Propagate{o, metav1.DeletePropagationOrphan}}
	default:
		return onceConfirmed(s.Facts, release)
	}
}

// onceConfirmed returns a plan if a list has shown no dependent that the graph does not
// have, and otherwise one that has the dependents listed.
func onceConfirmed(f Facts, plan Plan) Plan {
	switch {
	case f.Confirmed:
		return plan
	case f.ConfirmError != "":
		return Plan{Reason: DependentsUnreadable, Retry: true}
	default:
		return Plan{Reason: DependentsUnconfirmed, ConfirmDependents: true}
	}
}
