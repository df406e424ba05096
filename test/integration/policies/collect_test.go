package policies

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/test/pins"
)

// selectingPolicy is a policy for the test's ConfigMaps that have a label.
const selectingPolicy = `
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
`

func TestFixedOrphan_KeepsOwnerlessObjects(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.createConfigMap("owner")
	kept := w.createConfigMap("kept", owner)
	w.delete(owner)
	e := w.expectKept(kept, "KeptByPolicy")
	if e.Policy != "GCPolicy "+w.ns+"/keep" || len(e.Evaluations) != 1 || e.Evaluations[0].Decision != "Orphan" {
		t.Errorf("recorded: %+v", e)
	}
	w.eventually(func() error {
		if refs := w.get(kept).GetOwnerReferences(); len(refs) != 0 {
			return errorf("references: %v", refs)
		}
		return nil
	})
}

func TestMonitorMode_ChangesNothing(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan, reason: it is data}}`)
	owner := w.createConfigMap("owner")
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	w.waitForDeletion(dependent)
	e := w.waitForDeletionDecision(dependent)
	if len(e.Evaluations) != 1 || e.Evaluations[0].Mode != "Monitor" || e.Evaluations[0].Decision != "Orphan" || e.Policy != "builtin" {
		t.Errorf("recorded: %+v", e)
	}
	if !strings.Contains(e.String(), "Orphan (it is data) [Monitor: without effect]") {
		t.Errorf("record: %s", e)
	}
}

func TestDelay_CountsFromTheOwnersDeletion_AcrossRestarts(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 24h}}
  mode: Enforce`)
	owner := w.createConfigMap("owner")
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	e := w.expectKept(dependent, "DelayedByPolicy")
	if e.NextAttempt == nil || time.Until(*e.NextAttempt) < 23*time.Hour {
		t.Errorf("waits until %v", e.NextAttempt)
	}
	w.eventually(func() error {
		if w.stateOf(dependent).OwnersAbsentSince.IsZero() {
			return errorf("state annotation is missing")
		}
		return nil
	})
	// The policy's delay is reduced below the elapsed time: the object is deleted, since
	// the state annotation has the time when it lost its owner.
	w.patch(p, `{"spec": {"fixed": {"collect": {"delay": "1ms"}}}}`)
	w.waitForDeletion(dependent)
}

func TestStateAnnotation_IsRemoved_WhenNotNeeded(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 24h}}
  mode: Enforce`)
	owner, another := w.createConfigMap("owner"), w.createConfigMap("another")
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	w.expectKept(dependent, "DelayedByPolicy")
	w.eventually(func() error {
		if w.get(dependent).GetAnnotations()[objectstate.Annotation] == "" {
			return errorf("state annotation is missing")
		}
		return nil
	})
	w.patch(dependent, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "another", "uid": "`+string(another.GetUID())+`"}]}}`)
	w.eventually(func() error {
		if text := w.get(dependent).GetAnnotations()[objectstate.Annotation]; text != "" {
			return errorf("state annotation still exists: %s", text)
		}
		return nil
	})
}

func TestStateAnnotation_OfAnotherObject_IsIgnored(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 1h}}
  mode: Enforce`)
	owner := w.createConfigMap("owner")
	dependent := w.createConfigMap("dependent", owner)
	// The state of another object that lost its owner long ago.
	stray := objectstate.New("another", dependent.GetOwnerReferences(), time.Now().Add(-48*time.Hour))
	w.patch(dependent, `{"metadata": {"annotations": {"`+objectstate.Annotation+`": `+quoteJSON(w.signState(stray))+`}}}`)
	w.delete(owner)
	e := w.expectKept(dependent, "DelayedByPolicy")
	if e.NextAttempt == nil || time.Until(*e.NextAttempt) < 59*time.Minute {
		t.Errorf("waits until %v", e.NextAttempt)
	}
	w.eventually(func() error {
		if w.stateOf(dependent).OwnersAbsentSince.IsZero() {
			return errorf("invalid state annotation still exists")
		}
		return nil
	})
}

func TestRegoModule_DecidesByTheObject(t *testing.T) {
	w := newEnv(t)
	module := w.applyPolicy(`
kind: PolicyModule
metadata: {name: by-label}
spec:
  rego:
    inline: |
      package gleaner

      collect := {"decision": "Orphan", "reason": sprintf("%s is kept", [input.object.metadata.name])} if {
        input.object.metadata.labels.keep == input.policy.settings.value
      } else := {"decision": "Abstain"}

      validate := {"decision": "Valid"} if is_string(input.policy.settings.value)
      else := {"decision": "Invalid", "reason": "value must be a text"}`)
	w.waitForCondition(module, "Fetched", metav1.ConditionTrue, "Fetched", "")
	w.waitForCondition(module, "Compiled", metav1.ConditionTrue, "Compiled", "collect")
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: by-label}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: by-label}
  serviceAccount: {name: reader}
  settings: {value: "yes"}
  mode: Enforce`)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionTrue, "Ready", "collect")
	w.createReader("configmaps")
	owner := w.createConfigMap("owner")
	kept := w.createObject("ConfigMap", "kept", map[string]string{"keep": "yes"}, owner)
	dropped := w.createObject("ConfigMap", "dropped", map[string]string{"keep": "no"}, owner)
	w.delete(owner)
	w.waitForDeletion(dropped)
	e := w.expectKept(kept, "KeptByPolicy")
	if a := e.Evaluations[0]; a.Reason != "kept is kept" || a.Fuel == 0 || a.Module != "PolicyModule "+w.ns+"/by-label" || len(a.Digest) != 64 {
		t.Errorf("recorded: %+v", a)
	}
	w.patch(p, `{"spec": {"settings": {"value": 5}}}`)
	w.waitForCondition(p, "Accepted", metav1.ConditionFalse, "SettingsRefused", "value must be a text")
}

func TestFault_KeepsTheObject_UntilFixed(t *testing.T) {
	const fixed = "package gleaner\ncollect := {\"decision\": \"Delete\"}"
	w := newEnv(t)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: broken}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: missing, digest: ` + pins.Of(fixed) + `}
  needs: Reference
  mode: Enforce`)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionFalse, "NotFound", "there is no PolicyModule "+w.ns+"/missing: apply it")
	w.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "NotReady", "objects that it governs are kept")
	owner := w.createConfigMap("owner")
	held := w.createConfigMap("held", owner)
	w.delete(owner)
	e := w.expectKept(held, "PolicyFault")
	if !strings.Contains(e.Evaluations[0].Fault, "there is no PolicyModule") {
		t.Errorf("recorded: %+v", e)
	}
	w.applyPolicy(`
kind: PolicyModule
metadata: {name: missing}
spec: {rego: {inline: ` + quoteJSON(fixed) + `}}`)
	w.waitForDeletion(held)
}

func TestFault_IsIgnored_WithOnFaultDefault(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: broken}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: missing}
  onFault: Default
  mode: Enforce`)
	owner := w.createConfigMap("owner")
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	w.waitForDeletion(dependent)
}

func TestPolicies_PrecedenceSelectorsAndConditions(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: first-NS}
spec:` + selectingPolicy + `
  objectSelector: {matchLabels: {tier: data}}
  matchConditions: [{name: big, expression: "has(object.data) && size(object.data) > 1"}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: second}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 1h}}
  mode: Enforce`)
	w.waitForCondition(p, "Overlapping", metav1.ConditionTrue, "OthersFirst", "ClusterGCPolicy first-"+w.ns)
	owner := w.createConfigMap("owner")
	data := map[string]string{"tier": "data"}
	big := w.createObject("ConfigMap", "big", data, owner)
	small := w.createObject("ConfigMap", "small", data, owner)
	other := w.createObject("ConfigMap", "other", nil, owner)
	w.patch(big, `{"data": {"a": "1", "b": "2"}}`)
	w.delete(owner)
	w.expectKept(big, "KeptByPolicy")
	w.expectKept(small, "DelayedByPolicy")
	w.expectKept(other, "DelayedByPolicy")
}

func TestState_OfAModule_IsReturned(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: PolicyModule
metadata: {name: twice}
spec:
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Delete", "reason": sprintf("attempt %d, after %d", [input.attempt, input.state.attempt])} if input.state.attempt
      else := {"decision": "Wait", "after": "1s", "state": {"attempt": input.attempt}}`)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: twice}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  needs: Reference
  module: {name: twice}
  mode: Enforce`)
	owner := w.createConfigMap("owner")
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	w.waitForDeletion(dependent)
	if e := w.waitForDeletionDecision(dependent); !strings.HasSuffix(e.Evaluations[0].Reason, ", after 1") {
		t.Errorf("recorded: %+v", e.Evaluations)
	}
}

func TestPolicy_ChoosesThePropagationPolicy(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: how}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  fixed: {collect: {decision: Delete, propagation: Orphan, gracePeriodSeconds: 0}}
  mode: Enforce`)
	owner := w.createConfigMap("owner")
	middle := w.createObject("Secret", "middle", nil, owner)
	below := w.createConfigMap("below", middle)
	w.delete(owner)
	w.waitForDeletion(middle)
	w.waitForNoOwners(below)
	if e := w.waitForDeletionDecision(middle); e.Detail != "Orphan" {
		t.Errorf("recorded: %+v", e)
	}
}
