package policystatus

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retainer"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

// describeJobs returns the status of a policy for Jobs.
func describeJobs(t *testing.T, change func(*v1alpha1.ClusterRetentionPolicy), observed retainer.PolicyStatus, known bool) v1alpha1.RetentionPolicyStatus {
	t.Helper()
	p := &v1alpha1.ClusterRetentionPolicy{ObjectMeta: policysettest.Meta("", "jobs"), Spec: v1alpha1.RetentionPolicySpec{
		Mode: v1alpha1.ModeEnforce, KeepLast: ptr.To[int32](3), Resources: []v1alpha1.RetentionRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}}},
	}}
	if change != nil {
		change(p)
	}
	s := policysettest.New(t, nil, p).Settle()
	f := of(t, s)
	f.options.Serves = func(r schema.GroupResource) (bool, bool) { return r.Resource == "jobs", true }
	f.describeRetention(s.Retentions[0], observed, known, &p.Status)
	return p.Status
}

func TestRetention_IsEnforcing_OnlyIfItWasSeenToBe(t *testing.T) {
	evaluated := func(change func(*retainer.PolicyStatus)) retainer.PolicyStatus {
		s := retainer.PolicyStatus{}
		if change != nil {
			change(&s)
		}
		return s
	}
	for name, tc := range map[string]struct {
		policy   func(*v1alpha1.ClusterRetentionPolicy)
		observed retainer.PolicyStatus
		unknown  bool
		want     metav1.ConditionStatus
		reason   string
		words    string
	}{
		"nothing is observed": {nil, retainer.PolicyStatus{}, true, metav1.ConditionUnknown, "Listing", "until all objects are listed"},
		"listing":             {nil, evaluated(func(s *retainer.PolicyStatus) { s.Listing = true }), false, metav1.ConditionUnknown, "Listing", ""},
		"evaluated":           {nil, evaluated(nil), false, metav1.ConditionTrue, "Enforcing", "objects are removed"},
		"kept by another": {nil, evaluated(func(s *retainer.PolicyStatus) { s.KeptBy = "Job ci/a: b keeps it" }), false, metav1.ConditionTrue, "Enforcing",
			"another policy keeps Job ci/a: b keeps it"},
		"waiting":           {nil, evaluated(func(s *retainer.PolicyStatus) { s.Waiting, s.Failure = true, "Pause ci/all" }), false, metav1.ConditionFalse, "Waiting", "Pause ci/all"},
		"unreadable":        {nil, evaluated(func(s *retainer.PolicyStatus) { s.Unreadable = "etcd is down" }), false, metav1.ConditionUnknown, "ObjectsUnreadable", "etcd is down"},
		"uses are unknown":  {nil, evaluated(func(s *retainer.PolicyStatus) { s.UsesUnknown = "discovery fails" }), false, metav1.ConditionFalse, "UsesUnknown", "discovery fails"},
		"all removals fail": {nil, evaluated(func(s *retainer.PolicyStatus) { s.Due, s.Failing, s.Failure = 2, 2, "a webhook denied it" }), false, metav1.ConditionFalse, "RemovalsFailing", "a webhook denied it"},
		"some removals fail": {nil, evaluated(func(s *retainer.PolicyStatus) { s.Due, s.Failing, s.Failure = 3, 2, "a webhook denied it" }), false, metav1.ConditionTrue, "Enforcing",
			"2 objects can't be removed, retrying: a webhook denied it"},
		"too many":   {nil, evaluated(func(s *retainer.PolicyStatus) { s.TooMany, s.Problem = true, "too many" }), false, metav1.ConditionFalse, "NotAccepted", ""},
		"monitor":    {func(p *v1alpha1.ClusterRetentionPolicy) { p.Spec.Mode = v1alpha1.ModeMonitor }, evaluated(nil), false, metav1.ConditionFalse, "Monitor", "nothing is removed"},
		"not served": {func(p *v1alpha1.ClusterRetentionPolicy) { p.Spec.Resources[0].Resources = []string{"job"} }, evaluated(nil), false, metav1.ConditionFalse, "NotServed", "serves no job.batch"},
		"invalid": {func(p *v1alpha1.ClusterRetentionPolicy) {
			p.Spec.MatchConditions = []v1alpha1.MatchCondition{{Name: "broken", Expression: "object."}}
		}, evaluated(nil), false, metav1.ConditionFalse, "NotAccepted", "nothing is removed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := describeJobs(t, tc.policy, tc.observed, !tc.unknown)
			c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionEnforcing)
			if c == nil || c.Status != tc.want || c.Reason != tc.reason || !strings.Contains(c.Message, tc.words) {
				t.Errorf("it is %+v", c)
			}
			if tc.reason == "Listing" && s.Selected != nil {
				t.Error("what is not known is counted")
			}
		})
	}
}

func TestRetention_ShowsWhatIsRemovedNext(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	job := retention.Object{Kind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Namespace: "ci", Name: "a"}
	observed := retainer.PolicyStatus{Removed: map[retain.Reason]int64{retain.Excess: 2, retain.TooOld: 3}, FailedAt: at, Failure: strings.Repeat("x", 2000)}
	observed.Selected, observed.Due, observed.Kept = 7, 1, map[retain.Reason]int64{retain.IsProtected: 2}
	observed.Next = []retention.Decision{{Object: job, Reason: retain.Excess}, {Object: job, Reason: retain.WithinLimits, Due: at}}
	s := describeJobs(t, nil, observed, true)
	when := metav1.NewTime(at)
	want := []v1alpha1.NextRemoval{
		{APIVersion: "batch/v1", Kind: "Job", Namespace: "ci", Name: "a", Reason: "KeepLast"},
		{APIVersion: "batch/v1", Kind: "Job", Namespace: "ci", Name: "a", Time: &when},
	}
	if diff := cmp.Diff(want, s.NextRemovals); diff != "" {
		t.Errorf("next removals (-want +got):\n%s", diff)
	}
	if *s.Selected != 7 || *s.Due != 1 || *s.Removed != 5 || s.Kept["Protected"] != 2 || len(s.LastFailure.Message) > v1alpha1.MaxFailureMessage {
		t.Errorf("status: %+v", s)
	}
}
