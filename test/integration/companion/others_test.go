package policies

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server is told of all policies at once, and would take none of them.
func TestAPolicyWhoseSelectorCanNotBeReadKeepsNoOtherFromBeingEnforced(t *testing.T) {
	w := newWorld(t)
	other := worldOn(t, w.config, w.collector)
	bad := other.policy(`
kind: GCPolicy
metadata: {name: bad}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {"no label!": a}}
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	other.says(bad, "Accepted", metav1.ConditionFalse, "Invalid", "objectSelector can't be read")
	p := w.policy(keepsMaps)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.make("owner")
	kept := w.make("kept", owner)
	w.delete(owner)
	w.stays(kept, "KeptByPolicy")
	w.free(kept)
}
