package modules

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// judging are the conditions of which one that is False says that something is wrong, the
// causes first.
var judging = []string{
	v1alpha1.ConditionAccepted, v1alpha1.ConditionFetched, v1alpha1.ConditionCompiled, v1alpha1.ConditionModuleReady, v1alpha1.ConditionEnforcing,
}

// asWanted are the reasons for not enforcing that somebody has chosen.
var asWanted = []string{"Monitor"}

// summary is what kubectl get shows of conditions: the reason of the first one that says
// that something is wrong; "" if none does.
func summary(conditions []metav1.Condition) string {
	for _, name := range judging {
		for _, c := range conditions {
			if c.Type != name {
				continue
			}
			wrong := c.Status == metav1.ConditionFalse && (name != v1alpha1.ConditionEnforcing || !slices.Contains(asWanted, c.Reason))
			if wrong || c.Reason == reasonAlone { // which is also said of a policy that is in force
				return c.Reason
			}
		}
	}
	return ""
}

// summaryOf is that of a finalizer, whose objects may be stuck while all else is well.
func summaryOf(s *v1alpha1.FinalizerStatus) string {
	if reason := summary(s.Conditions); reason != "" || len(s.Stuck) == 0 {
		return reason
	}
	return s.Stuck[0].Reason
}
