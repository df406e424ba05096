package policies_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// The policies that govern an object are evaluated in this order, until one of them in
// Enforce mode doesn't abstain.
func ExampleSet_Candidates() {
	configMaps := []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}}
	collect := []hostabi.Hook{hostabi.HookCollect}
	set := policies.NewSet([]*policies.Policy{
		{Namespace: "shop", Name: "of-the-tenant", Rules: configMaps, Hooks: collect},
		{Name: "of-the-administrator", Rules: configMaps, Hooks: collect, Enforce: true},
		{Name: "of-other-resources", Rules: []policies.Rule{{Groups: []string{"apps"}, Resources: []string{policies.Wildcard}}}, Hooks: collect},
	})
	for p := range set.Candidates(hostabi.HookCollect, schema.GroupResource{Resource: "configmaps"}, "shop") {
		fmt.Println(p)
	}
	// Output:
	// ClusterGCPolicy of-the-administrator
	// GCPolicy shop/of-the-tenant
}
