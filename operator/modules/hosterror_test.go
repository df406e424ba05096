package modules

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/policies"
)

// TestHostError_KeepsObjectsWhateverOnFaultSays: onFault is for modules that fail, and not
// for an operator that can start no worker process.
func TestHostError_KeepsObjectsWhateverOnFaultSays(t *testing.T) {
	k := loading(t, keeper(t, func(o *Options) { o.Sandbox.Command = []string{"/nonexistent"} },
		inline("m"), deciding("p", "m", v1alpha1.OnFaultDefault)))
	b, err := k.settled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := b.policies[0]
	if p.policy.Asker != nil || p.policy.OnFault != policies.OnFaultHold || p.policy.Loading {
		t.Errorf("the policy is %+v", p.policy)
	}
	k.describe(b, p)
	has(t, p.status.Conditions, v1alpha1.ConditionModuleReady, metav1.ConditionFalse, "NotCompiled", "the objects that it governs are kept")

	if w := b.vetoes(testVeto(), "gleaner-system"); len(w) != 1 || *w[0].FailurePolicy != admissionv1.Fail {
		t.Errorf("beside another collector, deletes go ahead while the webhook does not answer: %+v", w)
	}
}
