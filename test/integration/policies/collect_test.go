package policies

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/test/pins"
)

// selecting governs the ConfigMaps of a test that have a label.
const selecting = `
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
`

func TestTheSimplestPolicyKeepsWhatLostItsOwner(t *testing.T) {
	w := newWorld(t)
	p := w.policy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	owner := w.make("owner")
	kept := w.make("kept", owner)
	w.delete(owner)
	e := w.stays(kept, "KeptByPolicy")
	if e.Policy != "GCPolicy "+w.ns+"/keep" || len(e.Asked) != 1 || e.Asked[0].Decision != "Orphan" {
		t.Errorf("recorded: %+v", e)
	}
	w.eventually(func() error {
		if refs := w.get(kept).GetOwnerReferences(); len(refs) != 0 {
			return errorf("references: %v", refs)
		}
		return nil
	})
}

func TestInMonitorModeNothingChanges(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan, reason: it is data}}`)
	owner := w.make("owner")
	dependent := w.make("dependent", owner)
	w.delete(owner)
	w.goes(dependent)
	e := w.decided(dependent, "OwnersAbsent")
	if len(e.Asked) != 1 || e.Asked[0].Mode != "Monitor" || e.Asked[0].Decision != "Orphan" || e.Policy != "builtin" {
		t.Errorf("recorded: %+v", e)
	}
	if !strings.Contains(e.String(), "Orphan (it is data) [Monitor: without effect]") {
		t.Errorf("told: %s", e)
	}
}

func TestADelayCountsFromTheLastOwnersEndAndOutlivesTheOperator(t *testing.T) {
	w := newWorld(t)
	p := w.policy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 24h}}
  mode: Enforce`)
	owner := w.make("owner")
	dependent := w.make("dependent", owner)
	w.delete(owner)
	e := w.stays(dependent, "DelayedByPolicy")
	if e.Until == nil || time.Until(*e.Until) < 23*time.Hour {
		t.Errorf("until %v", e.Until)
	}
	w.eventually(func() error {
		if w.remembered(dependent).OwnerlessSince.IsZero() {
			return errorf("nothing is remembered")
		}
		return nil
	})
	// The policy's delay is put down to less than has passed: the object goes, since
	// it is remembered since when it has had no owner.
	w.patch(p, `{"spec": {"fixed": {"collect": {"delay": "1ms"}}}}`)
	w.goes(dependent)
}

func TestAMemoGoesWithTheReasonForIt(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 24h}}
  mode: Enforce`)
	owner, another := w.make("owner"), w.make("another")
	dependent := w.make("dependent", owner)
	w.delete(owner)
	w.stays(dependent, "DelayedByPolicy")
	w.eventually(func() error {
		if w.get(dependent).GetAnnotations()[memo.Annotation] == "" {
			return errorf("nothing is remembered yet")
		}
		return nil
	})
	w.patch(dependent, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "another", "uid": "`+string(another.GetUID())+`"}]}}`)
	w.eventually(func() error {
		if text := w.get(dependent).GetAnnotations()[memo.Annotation]; text != "" {
			return errorf("still remembered: %s", text)
		}
		return nil
	})
}

func TestAMemoThatTravelledIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: GCPolicy
metadata: {name: later}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 1h}}
  mode: Enforce`)
	owner := w.make("owner")
	dependent := w.make("dependent", owner)
	// As another object would have it, that has been without an owner for long.
	stray := memo.New("another", dependent.GetOwnerReferences(), time.Now().Add(-48*time.Hour))
	w.patch(dependent, `{"metadata": {"annotations": {"`+memo.Annotation+`": `+quoted(w.signed(stray))+`}}}`)
	w.delete(owner)
	e := w.stays(dependent, "DelayedByPolicy")
	if e.Until == nil || time.Until(*e.Until) < 59*time.Minute {
		t.Errorf("until %v", e.Until)
	}
	w.eventually(func() error {
		if w.remembered(dependent).OwnerlessSince.IsZero() {
			return errorf("the stray memo is still there")
		}
		return nil
	})
}

func TestARegoModuleDecidesByTheObject(t *testing.T) {
	w := newWorld(t)
	module := w.policy(`
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
	w.says(module, "Fetched", metav1.ConditionTrue, "Fetched", "")
	w.says(module, "Compiled", metav1.ConditionTrue, "Compiled", "collect")
	p := w.policy(`
kind: GCPolicy
metadata: {name: by-label}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: by-label}
  serviceAccount: {name: reader}
  settings: {value: "yes"}
  mode: Enforce`)
	w.says(p, "ModuleReady", metav1.ConditionTrue, "Ready", "collect")
	w.reader("configmaps")
	owner := w.make("owner")
	kept := w.object("ConfigMap", "kept", map[string]string{"keep": "yes"}, owner)
	dropped := w.object("ConfigMap", "dropped", map[string]string{"keep": "no"}, owner)
	w.delete(owner)
	w.goes(dropped)
	e := w.stays(kept, "KeptByPolicy")
	if a := e.Asked[0]; a.Reason != "kept is kept" || a.Fuel == 0 || a.Module != "PolicyModule "+w.ns+"/by-label" || len(a.Digest) != 64 {
		t.Errorf("recorded: %+v", a)
	}
	w.patch(p, `{"spec": {"settings": {"value": 5}}}`)
	w.says(p, "Accepted", metav1.ConditionFalse, "SettingsRefused", "value must be a text")
}

func TestAFaultHoldsTheObjectUntilItsCauseIsMended(t *testing.T) {
	const mended = "package gleaner\ncollect := {\"decision\": \"Delete\"}"
	w := newWorld(t)
	p := w.policy(`
kind: GCPolicy
metadata: {name: broken}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: missing, digest: ` + pins.Of(mended) + `}
  needs: Reference
  mode: Enforce`)
	w.says(p, "ModuleReady", metav1.ConditionFalse, "NotFound", "there is no PolicyModule "+w.ns+"/missing: apply it")
	w.says(p, "Enforcing", metav1.ConditionFalse, "NotReady", "objects that it governs are kept")
	owner := w.make("owner")
	held := w.make("held", owner)
	w.delete(owner)
	e := w.stays(held, "PolicyAtFault")
	if !strings.Contains(e.Asked[0].Fault, "there is no PolicyModule") {
		t.Errorf("recorded: %+v", e)
	}
	w.policy(`
kind: PolicyModule
metadata: {name: missing}
spec: {rego: {inline: ` + quoted(mended) + `}}`)
	w.goes(held)
}

func TestAFaultIsPassedOverWhereThePolicySaysSo(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: GCPolicy
metadata: {name: broken}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: missing}
  onFault: Default
  mode: Enforce`)
	owner := w.make("owner")
	dependent := w.make("dependent", owner)
	w.delete(owner)
	w.goes(dependent)
}

func TestClusterPoliciesGoFirstAndSelectorsAndConditionsAreHeeded(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: ClusterGCPolicy
metadata: {name: first-NS}
spec:` + selecting + `
  objectSelector: {matchLabels: {tier: data}}
  matchConditions: [{name: big, expression: "has(object.data) && size(object.data) > 1"}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	p := w.policy(`
kind: GCPolicy
metadata: {name: second}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Delete, delay: 1h}}
  mode: Enforce`)
	w.says(p, "Overlapping", metav1.ConditionTrue, "OthersFirst", "ClusterGCPolicy first-"+w.ns)
	owner := w.make("owner")
	data := map[string]string{"tier": "data"}
	big := w.object("ConfigMap", "big", data, owner)
	small := w.object("ConfigMap", "small", data, owner)
	other := w.object("ConfigMap", "other", nil, owner)
	w.patch(big, `{"data": {"a": "1", "b": "2"}}`)
	w.delete(owner)
	w.stays(big, "KeptByPolicy")
	w.stays(small, "DelayedByPolicy")
	w.stays(other, "DelayedByPolicy")
}

func TestWhatAModuleLeavesToRememberIsBroughtBack(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: PolicyModule
metadata: {name: twice}
spec:
  rego:
    inline: |
      package gleaner
      collect := {"decision": "Delete", "reason": sprintf("attempt %d, after %d", [input.attempt, input.state.attempt])} if input.state.attempt
      else := {"decision": "Wait", "after": "1s", "state": {"attempt": input.attempt}}`)
	w.policy(`
kind: GCPolicy
metadata: {name: twice}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  needs: Reference
  module: {name: twice}
  mode: Enforce`)
	owner := w.make("owner")
	dependent := w.make("dependent", owner)
	w.delete(owner)
	w.goes(dependent)
	if e := w.decided(dependent, "OwnersAbsent"); !strings.HasSuffix(e.Asked[0].Reason, ", after 1") {
		t.Errorf("recorded: %+v", e.Asked)
	}
}

func TestAPolicyChoosesHowAnObjectGoes(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: GCPolicy
metadata: {name: how}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  fixed: {collect: {decision: Delete, propagation: Orphan, gracePeriodSeconds: 0}}
  mode: Enforce`)
	owner := w.make("owner")
	middle := w.object("Secret", "middle", nil, owner)
	below := w.make("below", middle)
	w.delete(owner)
	w.goes(middle)
	w.free(below)
	if e := w.decided(middle, "OwnersAbsent"); e.How != "Orphan" {
		t.Errorf("recorded: %+v", e)
	}
}
