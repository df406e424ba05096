package modules

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// What a policy in Monitor decides changes nothing, so it takes precedence over nothing.
func TestOverlapping_MentionsOnlyPoliciesThatTakePrecedenceInEffect(t *testing.T) {
	tier := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"tier": value}}
	}
	for claim, c := range map[string]struct {
		change func(*v1alpha1.GCPolicySpec)
		first  bool // the other one takes precedence
	}{
		"one that enforces":                {func(*v1alpha1.GCPolicySpec) {}, true},
		"not one in Monitor":               {func(s *v1alpha1.GCPolicySpec) { s.Mode = v1alpha1.ModeMonitor }, false},
		"one that selects the same labels": {func(s *v1alpha1.GCPolicySpec) { s.ObjectSelector = tier("data") }, true},
		"not one that selects others":      {func(s *v1alpha1.GCPolicySpec) { s.ObjectSelector = tier("web") }, false},
		"one without the module that it needs, which keeps what it governs": {func(s *v1alpha1.GCPolicySpec) {
			s.Fixed, s.Module = nil, &v1alpha1.ModuleReference{Name: "missing", Digest: digestOf(keepText)}
		}, true},
		"not one without its module that leaves it to the next": {func(s *v1alpha1.GCPolicySpec) {
			s.Fixed, s.Module, s.OnFault = nil, &v1alpha1.ModuleReference{Name: "missing", Digest: digestOf(keepText)}, v1alpha1.OnFaultDefault
		}, false},
	} {
		t.Run(claim, func(t *testing.T) {
			other, mine := keeping(nil, configMaps()...), keeping(tier("data"), configMaps()...)
			other.Priority = 9
			c.change(&other)
			k := keeper(t, nil, &v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "other"), Spec: other}, &v1alpha1.ClusterGCPolicy{ObjectMeta: named("", "mine"), Spec: mine})
			b, err := k.settled(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p := b.policies[slices.IndexFunc(b.policies, func(p *policyState) bool { return p.key.Name == "mine" })]
			k.describe(b, p)
			if c.first {
				has(t, p.status.Conditions, v1alpha1.ConditionOverlapping, metav1.ConditionTrue, "OthersFirst", "ClusterGCPolicy other")
				return
			}
			has(t, p.status.Conditions, v1alpha1.ConditionOverlapping, metav1.ConditionFalse, "First", "")
			if strings.Contains(p.status.Conditions[0].Message, "ClusterGCPolicy other") {
				t.Error("it is mentioned")
			}
		})
	}
}
