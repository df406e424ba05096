package decide

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// collectorPatience is how long the other collector is given to come for an object
// that it may have. It may have been refused before, and not come again for a long
// time.
const collectorPatience = 10 * time.Second

// Beside makes the plan for a situation where another collector does the
// collecting. Of what Choose would plan it plans what policies ask for, and leaves
// the rest alone: without policies there is nothing that it would write.
func Beside(s Situation, j Judgement) Plan {
	switch s.Kind {
	case Settled:
		return settled(s)
	case Ownerless:
		return collectBeside(s, j)
	case Held:
		return yielding(s.Facts.Object, propagateBeside(s, j))
	default:
		return Plan{}
	}
}

// yielding has a hold come off although the object has changed since, where a client has
// said what becomes of the dependents. The other collector sees to that meanwhile, and
// takes its finalizer off: then the object looks as if nobody had asked for anything, and
// the policy would be asked after all.
func yielding(o graph.Object, p Plan) Plan {
	if r, ok := p.Action.(RemoveFinalizer); ok && (o.Orphan || o.Foreground) {
		r.Regardless = true
		p.Action = r
	}
	return p
}

// collectBeside deletes only what the other collector would not, or not so, or may
// have been kept from.
func collectBeside(s Situation, j Judgement) Plan {
	if j.Fault && !j.Contested {
		return Plan{Retry: true} // the policies are still to be read: the webhook refuses for as long
	}
	plan := collect(s, j)
	if _, deletes := plan.Action.(Delete); !deletes || j.Kept || s.Facts.Object.Memo {
		return plan
	}
	switch {
	case j.Contested && !j.Usual, (j.Contested || j.Refusable) && j.Attempt > 1:
		return plan
	case j.Contested:
		return Plan{Reason: LeftToCollector, After: collectorPatience}
	case j.Watched:
		return Plan{Reason: LeftToCollector}
	case j.Refusable:
		return Plan{After: collectorPatience} // without a word: it concerns no policy
	default:
		return Plan{}
	}
}

// propagateBeside has the other collector carry out what was decided. The one thing
// that can't be left to it is to orphan everything: it knows of no dependent that
// was made a moment ago, and would collect that one later (G-69). So the hold stays
// until a list has shown no dependent after all have been let go; as long as there
// is one the collector is sent again.
func propagateBeside(s Situation, j Judgement) Plan {
	o, release := s.Facts.Object, Plan{Reason: HoldReleased, Action: RemoveFinalizer{Object: s.Facts.Object, Finalizer: graph.Hold}}
	decided := propagations[propagationOf(j)]
	switch {
	case j.Fault || !j.Decided:
		return propagate(s, j)
	case decided == metav1.DeletePropagationForeground && !j.unwritten(o) && s.Facts.Blocking == 0:
		return release // it has waited, or there is nothing to wait for
	case decided != metav1.DeletePropagationOrphan:
		return propagate(s, j)
	case j.unwritten(o):
		return Plan{Reason: PropagationDecided, Action: Remember{Object: o, Memo: j.Memo}}
	case o.Orphan:
		return Plan{Reason: LeftToCollector}
	case s.Facts.Dependents != 0:
		return Plan{Reason: PropagationDecided, Action: Propagate{o, metav1.DeletePropagationOrphan}}
	case s.Facts.Confirmed:
		return release
	case s.Facts.Unconfirmed != "":
		return Plan{Reason: DependentsUnreadable, Retry: true}
	default:
		return Plan{Reason: DependentsUnconfirmed, Confirm: true}
	}
}
