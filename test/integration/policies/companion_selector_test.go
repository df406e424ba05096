package policies

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server evaluates the selectors of all policies together: an invalid one would disable all of them.
func TestInvalidSelector_DoesNotAffectOtherPolicies(t *testing.T) {
	w := newEnv(t)
	other := newEnvOn(t, w.config, w.collector)
	bad := other.applyPolicy(`
kind: GCPolicy
metadata: {name: bad}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {"no label!": a}}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	other.waitForCondition(bad, "Accepted", metav1.ConditionFalse, "Invalid", "objectSelector can't be read")
	p := w.applyPolicy(keepConfigMaps)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.createConfigMap("owner")
	kept := w.createConfigMap("kept", owner)
	w.delete(owner)
	w.expectKept(kept, "KeptByPolicy")
	w.waitForNoOwners(kept)
}
