package modules

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func TestSummary_IsTheReasonOfWhatIsWrong(t *testing.T) {
	is := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	const yes, no = metav1.ConditionTrue, metav1.ConditionFalse
	for claim, c := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"nothing is said yet": {nil, ""},
		"all is well":         {[]metav1.Condition{is("Accepted", yes, "Accepted"), is("ModuleReady", yes, "Ready"), is("Enforcing", yes, "Enforcing")}, ""},
		"Monitor is wanted":   {[]metav1.Condition{is("Accepted", yes, "Accepted"), is("Enforcing", no, "Monitor")}, ""},
		"the cause comes before what follows from it": {
			[]metav1.Condition{is("Enforcing", no, "NotReady"), is("ModuleReady", no, "DigestMismatch"), is("Accepted", yes, "Accepted")}, "DigestMismatch",
		},
		"it is not enforced":             {[]metav1.Condition{is("ModuleReady", yes, "Ready"), is("Enforcing", no, "ObjectWithheld")}, "ObjectWithheld"},
		"there is no other collector":    {[]metav1.Condition{is("Enforcing", yes, reasonAlone)}, reasonAlone},
		"a module could not be fetched":  {[]metav1.Condition{is("Compiled", no, "NotFetched"), is("Fetched", no, "NotFound")}, "NotFound"},
		"nobody overlaps, which is well": {[]metav1.Condition{is("Overlapping", no, "First"), is("Attached", no, "NotWanted")}, ""},
	} {
		t.Run(claim, func(t *testing.T) {
			if got := summary(c.conditions); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	stuck := &v1alpha1.FinalizerStatus{Stuck: []v1alpha1.StuckObject{{Reason: "Blocked"}, {Reason: "Failed"}}}
	if got := summaryOf(stuck); got != "Blocked" {
		t.Errorf("of a finalizer with objects that are stuck: %q", got)
	}
}
