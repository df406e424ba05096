package consult_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// Discovery may leave a type out of one answer. The default knows of no policy, and
// would have the object deleted.
func TestWhatIsOfNoServedTypeIsKeptWhateverThePoliciesSay(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}
	facts := decide.Facts{
		Object: graph.Object{
			UID: "uid", ResourceVersion: "1", Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
			Namespace: "shop", Name: "w", Owners: []metav1.OwnerReference{owner},
		},
		Owners: []decide.Owner{{Reference: owner, Standing: decide.Absent}},
	}
	c := &consult.Consultant{
		Policies: func() *policies.Set {
			return policies.NewSet([]*policies.Policy{{
				Name: "keep", Enforce: true, Hooks: []hostabi.Hook{hostabi.HookCollect},
				Rules: []policies.Rule{{Groups: []string{"example.com"}, Resources: []string{"widgets"}}},
			}})
		},
		Default: builtin.Policy{}, Catalog: func() *catalog.Catalog { return nil }, Now: time.Now,
	}
	opinion, err := c.Ask(t.Context(), consult.Question{Hook: hostabi.HookCollect, Facts: facts})
	if err != nil || opinion.Fault == nil || opinion.Verdict.Decision != "" {
		t.Errorf("got %+v, %v; want a fault, and no verdict", opinion, err)
	}
}
