package doctor

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/budgetstore"
)

// maxBudgetDelay is how long the operator may take to say that a budget is in force.
const maxBudgetDelay = 10 * time.Second

// budgets reports exhausted deletion budgets, and those that are not in force. Without any, there is nothing to say.
func (p *checker) budgets(context.Context) []Finding {
	found := p.unread("DeletionBudgets")
	for _, r := range p.resources.Budgets {
		accepted := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAccepted)
		known := accepted != nil && accepted.ObservedGeneration == r.GetGeneration()
		switch {
		case !known && p.resources.ReadAt.Sub(r.GetCreationTimestamp().Time) > maxBudgetDelay:
			found = append(found, problem("check that the operator is running, and its log", "no operator says that %s is in force: it may not limit deletions", r))
		case known && accepted.Status != metav1.ConditionTrue:
			found = append(found, problem("", "%s: %s", r, accepted.Message))
		case r.IsTripped():
			found = append(found, warning("find out what is being deleted: "+recordsOf(r), "%s", r.Message()))
		case r.IsExhausted():
			found = append(found, warning("to let deletions continue now: gleaner resume "+r.ResumeArgs(), "%s", r.Message()))
		}
	}
	if len(found) == 0 && len(p.resources.Budgets) == 0 {
		return nil
	}
	return findingsOrOK(found, "%d, none is exhausted", len(p.resources.Budgets))
}

// recordsOf returns the command that lists what was deleted within a budget's window.
func recordsOf(r budgetstore.Resource) string {
	args := fmt.Sprintf("gleaner records --since %s", r.Spec.Window.Duration)
	if r.GetNamespace() != "" {
		args += " -n " + r.GetNamespace()
	}
	return args
}
