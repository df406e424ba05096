package crds

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func TestKubectlGet_ShowsRetentionPolicies(t *testing.T) {
	a := newAPI(t)
	a.applyStory()
	a.writeStatus(retention, "last-jobs", v1alpha1.RetentionPolicyStatus{
		Selected: ptr.To[int64](12), Due: ptr.To[int64](0), Removed: ptr.To[int64](40), Conditions: []metav1.Condition{condition(v1alpha1.ConditionEnforcing, metav1.ConditionTrue)},
		Kept:         map[string]int64{"Protected": 2},
		NextRemovals: []v1alpha1.NextRemoval{{APIVersion: "batch/v1", Kind: "Job", Namespace: "default", Name: "a", Reason: "KeepLast"}},
	})
	for command, want := range map[string][]string{
		"retpol":  {"NAME|MODE|SELECTED|DUE|REMOVED|ENFORCING|REASON|AGE", "last-jobs|Enforce|12|0|40|True||AGE"},
		"cretpol": {"NAME|MODE|SELECTED|DUE|REMOVED|ENFORCING|REASON|AGE", "unused-settings|Monitor||||||AGE"},
	} {
		a.expectColumns(command, want)
	}
}
