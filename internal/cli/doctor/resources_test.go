package doctor

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
)

func condition(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "because of " + reason}
}

func TestResources_NotEnforcedIsProblemUnlessIntended(t *testing.T) {
	accepted := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		want       Severity
		words      string
	}{
		"enforced":              {[]metav1.Condition{accepted, condition(v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing")}, OK, ""},
		"monitoring":            {[]metav1.Condition{accepted, condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "Monitor")}, OK, ""},
		"it may not read":       {[]metav1.Condition{accepted, condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "ObjectWithheld")}, Problem, "is not Enforcing: ObjectWithheld"},
		"no such type":          {[]metav1.Condition{condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "NotServed"), condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "NotServed")}, Problem, "is not Enforcing: NotServed"},
		"no such type, Monitor": {[]metav1.Condition{condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "NotServed"), condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "Monitor")}, Warning, "because of NotServed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &checker{resources: &finalizers.Resources{
				Policies:   []finalizers.Policy{{Kind: "ClusterGCPolicy", Status: v1alpha1.GCPolicyStatus{Conditions: tc.conditions}}},
				Finalizers: []finalizers.FinalizerResource{{Kind: "ClusterFinalizer", Status: v1alpha1.FinalizerStatus{Conditions: tc.conditions}}},
			}}
			for _, found := range [][]Finding{p.policies(t.Context()), p.finalizers(t.Context())} {
				if len(found) != 1 || found[0].Severity != tc.want || !strings.Contains(found[0].Message, tc.words) {
					t.Errorf("found %+v", found)
				}
			}
		})
	}
}

func TestRetentions_ThatDoNotRemoveAreProblems(t *testing.T) {
	accepted := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	failure := func(ago time.Duration) *v1alpha1.Failure {
		return &v1alpha1.Failure{Time: metav1.NewTime(time.Now().Add(-ago)), Message: "a webhook denied it"}
	}
	for name, tc := range map[string]struct {
		status v1alpha1.RetentionPolicyStatus
		want   Severity
		words  string
	}{
		"enforcing":     {v1alpha1.RetentionPolicyStatus{Conditions: []metav1.Condition{accepted, condition(v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing")}}, OK, "1, none failing"},
		"monitor":       {v1alpha1.RetentionPolicyStatus{Conditions: []metav1.Condition{accepted, condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "Monitor")}}, OK, ""},
		"waiting":       {v1alpha1.RetentionPolicyStatus{Conditions: []metav1.Condition{accepted, condition(v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "Waiting")}}, OK, ""},
		"invalid":       {v1alpha1.RetentionPolicyStatus{Conditions: []metav1.Condition{condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Invalid")}}, Problem, "is not Accepted: Invalid"},
		"failing":       {v1alpha1.RetentionPolicyStatus{LastFailure: failure(time.Minute), Conditions: []metav1.Condition{accepted}}, Warning, "a webhook denied it"},
		"failed before": {v1alpha1.RetentionPolicyStatus{LastFailure: failure(2 * time.Hour), Conditions: []metav1.Condition{accepted}}, OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &checker{resources: &finalizers.Resources{Retentions: []finalizers.Retention{{Kind: "RetentionPolicy", Status: tc.status}}}}
			if found := p.retentions(t.Context()); len(found) != 1 || found[0].Severity != tc.want || !strings.Contains(found[0].Message, tc.words) {
				t.Errorf("found %+v", found)
			}
		})
	}
	if found := (&checker{resources: &finalizers.Resources{}}).retentions(t.Context()); len(found) != 0 {
		t.Errorf("without retention policies: %+v", found)
	}
}

func TestArchives_ThatDoNotArchiveAreProblems(t *testing.T) {
	accepted := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, "Accepted")
	for name, tc := range map[string]struct {
		status v1alpha1.ArchivePolicyStatus
		want   Severity
		words  string
	}{
		"archiving":  {v1alpha1.ArchivePolicyStatus{Conditions: []metav1.Condition{accepted, condition(v1alpha1.ConditionArchiving, metav1.ConditionTrue, "Archiving")}}, OK, "1, all archiving"},
		"removed":    {v1alpha1.ArchivePolicyStatus{Conditions: []metav1.Condition{accepted, condition(v1alpha1.ConditionArchiving, metav1.ConditionFalse, "Removed")}}, OK, ""},
		"no archive": {v1alpha1.ArchivePolicyStatus{Conditions: []metav1.Condition{accepted, condition(v1alpha1.ConditionArchiving, metav1.ConditionFalse, "NoStore")}}, Problem, "is not Archiving: NoStore"},
		"let go":     {v1alpha1.ArchivePolicyStatus{Missed: 2, Conditions: []metav1.Condition{accepted}}, Warning, "2 objects were deleted without being archived"},
		"stuck":      {v1alpha1.ArchivePolicyStatus{StalledObjects: make([]v1alpha1.StalledObject, 3), Conditions: []metav1.Condition{accepted}}, Warning, "3 objects that are being deleted can't be archived"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &checker{resources: &finalizers.Resources{Archives: []finalizers.Archive{{Kind: "ArchivePolicy", Status: tc.status}}}}
			if found := p.archives(t.Context()); len(found) != 1 || found[0].Severity != tc.want || !strings.Contains(found[0].Message, tc.words) {
				t.Errorf("found %+v", found)
			}
		})
	}
	if found := (&checker{resources: &finalizers.Resources{}}).archives(t.Context()); len(found) != 0 {
		t.Errorf("without archive policies: %+v", found)
	}
}
