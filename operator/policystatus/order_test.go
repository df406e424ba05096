package policystatus

import (
	"testing"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
)

func TestEnforcing_IsFalseIfTheOrderHasAKindThatIsNotServed(t *testing.T) {
	ordered := func(name string, kinds ...string) *v1alpha1.ClusterGCPolicy {
		var order []v1alpha1.Wave
		for _, kind := range kinds {
			order = append(order, v1alpha1.Wave{{Group: "apps", Kind: kind}})
		}
		return &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", name), Spec: v1alpha1.GCPolicySpec{
			Resources: policysettest.ConfigMaps(), Mode: v1alpha1.ModeEnforce,
			Fixed: &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{Decision: "Foreground", Order: order}},
		}}
	}
	f := settled(t, ordered("good", "Deployment"), ordered("bad", "Deployment", "Deploy"))
	f.has(f.status("good", installed()).Conditions, v1alpha1.ConditionEnforcing, yes, "Enforcing", "")
	f.has(f.status("bad", installed()).Conditions, v1alpha1.ConditionEnforcing, no, "NotServed", "is kept when it is deleted: Deploy.apps. Write kind and group")
}
