package policies

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func TestRetainHook_AFixedVerdictKeepsWhatItSelects(t *testing.T) {
	w := newEnv(t)
	looking, old := w.createObject("Secret", "looking", map[string]string{"debug": "true"}), w.createObject("Secret", "old", nil)
	keeping := w.applyPolicy(`
kind: GCPolicy
metadata: {name: debug}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  objectSelector: {matchLabels: {debug: "true"}}
  fixed: {retain: {decision: Keep, reason: somebody looks at it}}`)
	p := w.retention("old", "Enforce", "/secrets", "maxAge: 1s")
	w.waitForDeletion(old)
	if e := w.expectKept(looking, "KeptByPolicy"); e.Policy != "GCPolicy "+w.ns+"/debug" || len(e.Evaluations) != 1 || e.Evaluations[0].Hook != "retain" || e.NextAttempt == nil {
		t.Errorf("recorded %+v", e)
	}
	w.waitForCondition(p, v1alpha1.ConditionEnforcing, metav1.ConditionTrue, "Enforcing",
		"another policy keeps Secret "+w.ns+"/looking: GCPolicy "+w.ns+"/debug: somebody looks at it")
	w.eventually(func() error {
		if s := statusOf(t, w.get(p)); s.Kept["Policy"] != 1 || ptr.Deref(s.Due, -1) != 0 || len(s.NextRemovals) != 0 {
			return errorf("status %+v", s)
		}
		return nil
	})
	w.patch(keeping, `{"spec": {"mode": "Monitor"}}`)
	w.waitForDeletion(looking)
	if e := w.waitForDecision(looking, "RemovedByRetention"); len(e.Evaluations) != 1 || e.Evaluations[0].Decision != "Keep" {
		t.Errorf("recorded %+v; want what the policy in mode Monitor would have done", e)
	}
}

func TestRetainHook_AModuleReadsOthersAndDecides(t *testing.T) {
	w := newEnv(t)
	w.applyModule("release", `
retain := {"decision": "Act", "intents": [{"id": "all", "list": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": input.object.metadata.namespace}}]} if not input.results.all

else := {"decision": "Remove"} if "release" in {item.metadata.name | some item in input.results.all.list.items}

else := {"decision": "Keep", "after": "1s", "reason": sprintf("%s of %s/%s: there is no release", [input.retention.limit, input.retention.namespace, input.retention.policy])}`)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: release}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [configmaps]}]
  objectSelector: {matchLabels: {tier: old}}
  module: {name: release}
  ` + strings.ReplaceAll(w.readerSpec(), "\n", "\n  ") + `
  grants: {read: [{apiGroups: [""], resources: [configmaps]}]}`)
	o := w.createObject("ConfigMap", "settings", map[string]string{"tier": "old"})
	w.retention("old", "Enforce", "/configmaps", "objectSelector: {matchLabels: {tier: old}}\nmaxAge: 1s")
	if e := w.expectKept(o, "KeptByPolicy"); !strings.Contains(e.String(), "MaxAge of "+w.ns+"/old: there is no release") {
		t.Errorf("recorded %s", e)
	}
	w.createConfigMap("release")
	w.waitForDeletion(o)
}

// What can't be decided about stays.
func TestRetainHook_AModuleThatFailsKeepsTheObject(t *testing.T) {
	w := newEnv(t)
	w.applyModule("broken", `retain := {"decision": "Delete"}`)
	policy := w.applyPolicy(`
kind: GCPolicy
metadata: {name: broken}
spec:
  mode: Enforce
  resources: [{apiGroups: [""], resources: [secrets]}]
  module: {name: broken}
  needs: Reference`)
	o := w.createObject("Secret", "old", nil)
	p := w.retention("old", "Enforce", "/secrets", "maxAge: 1s")
	w.expectKept(o, "PolicyFault")
	w.waitForCondition(p, v1alpha1.ConditionEnforcing, metav1.ConditionFalse, "RemovalsFailing", `decision is "Delete": write Remove, Keep, Act or Abstain`)
	w.patch(policy, `{"spec": {"onFault": "Default"}}`)
	w.waitForDeletion(o)
}
