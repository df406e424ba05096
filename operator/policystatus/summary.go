package policystatus

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// problemTypes are the conditions that are False if something is wrong, causes first.
var problemTypes = []string{
	v1alpha1.ConditionAccepted, v1alpha1.ConditionFetched, v1alpha1.ConditionCompiled, v1alpha1.ConditionModuleReady, v1alpha1.ConditionEnforcing,
	v1alpha1.ConditionArchiving,
}

// chosenReasons are the reasons for not enforcing that the author has chosen.
var chosenReasons = []string{"Monitor"}

// summary returns what kubectl get shows of conditions: the reason of the first one that
// says that something is wrong; "" if none does.
func summary(conditions []metav1.Condition) string {
	for _, name := range problemTypes {
		for _, c := range conditions {
			if c.Type != name {
				continue
			}
			wrong := c.Status == metav1.ConditionFalse && (name != v1alpha1.ConditionEnforcing || !slices.Contains(chosenReasons, c.Reason))
			if wrong || c.Reason == reasonNoCollector { // also of a policy that is enforced
				return c.Reason
			}
		}
	}
	return ""
}

// finalizerSummary is the summary of a finalizer, whose objects may be stuck while all else
// is well.
func finalizerSummary(s *v1alpha1.FinalizerStatus) string {
	if reason := summary(s.Conditions); reason != "" || len(s.StalledObjects) == 0 {
		return reason
	}
	return s.StalledObjects[0].Reason
}

// archiveSummary is the summary of an archive policy, which may archive all but Secrets, and some
// of whose objects may be stuck while all else is well.
func archiveSummary(s *v1alpha1.ArchivePolicyStatus) string {
	if reason := summary(s.Conditions); reason != "" {
		return reason
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionArchiving); c != nil && c.Reason == reasonSecrets {
		return c.Reason
	}
	if len(s.StalledObjects) != 0 {
		return s.StalledObjects[0].Reason
	}
	return ""
}
