package doctor

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/pause"
)

// kubectlName returns the arguments for kubectl that name a pause.
func kubectlName(p pause.Pause) string {
	if p.Namespace == "" {
		return "clusterpause " + p.Name
	}
	return fmt.Sprintf("pause %s -n %s", p.Name, p.Namespace)
}

// maxPauseDelay is how long the operator may take to say that a pause is in force.
const maxPauseDelay = 10 * time.Second

// pauses reports what is paused, and pauses that are not in force although they should be.
func (p *checker) pauses(context.Context) []Finding {
	found := p.unread("Pauses")
	for _, r := range p.resources.Pauses {
		stops, now := r.Pause(), p.resources.ReadAt
		c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionInForce)
		known := c != nil && c.ObservedGeneration == r.GetGeneration()
		switch {
		case stops.Ended(now):
			found = append(found, warning("delete it", "%s has ended by itself, and still exists", stops))
		case !known && now.Sub(r.GetCreationTimestamp().Time) > maxPauseDelay, known && c.Status != metav1.ConditionTrue:
			found = append(found, problem("check that the operator is running, and its log", "no operator says that %s is in force: deletions may continue", stops))
		default:
			what := "everything"
			if stops.Namespace != "" {
				what += " in namespace " + stops.Namespace
			}
			if stops.Policy != "" {
				what = "what " + stops.Policy + " decides"
			}
			found = append(found, warning(fmt.Sprintf("to end it: kubectl delete %s", kubectlName(stops)), "%s is %s", what, pause.Message(stops)))
		}
	}
	return findingsOrOK(found, "nothing is paused")
}
