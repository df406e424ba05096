package policies

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// governingPolicy is a policy for the test's Secrets, so that its ConfigMaps can be their
// dependents.
const governingPolicy = `
kind: GCPolicy
metadata: {name: governs}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  mode: Enforce
  fixed: `

// waitForHold waits until an object has a hold, or has none.
func (w *env) waitForHold(o *unstructured.Unstructured, wanted bool) {
	w.Helper()
	w.eventually(func() error {
		if is := slices.Contains(w.get(o).GetFinalizers(), graph.Hold); is != wanted {
			return errorf("%s has a hold: %t; %s", o.GetName(), is, w.describeDecisions(o))
		}
		return nil
	})
}

// createHeldSecret creates a governed owner, and waits for its hold.
func (w *env) createHeldSecret() *unstructured.Unstructured {
	w.Helper()
	o := w.createObject("Secret", "owner", nil)
	w.waitForHold(o, true)
	return o
}

// waitForNoOwners waits until an object exists without owner references.
func (w *env) waitForNoOwners(o *unstructured.Unstructured) {
	w.Helper()
	w.eventually(func() error {
		live := w.get(o)
		if live.GetName() == "" {
			w.Fatalf("%s is gone; %s", o.GetName(), w.describeDecisions(o))
		}
		if refs := live.GetOwnerReferences(); len(refs) != 0 {
			return errorf("%s: %v", o.GetName(), refs)
		}
		return nil
	})
}

func TestHold_IsAddedAndRemoved_WithThePolicy(t *testing.T) {
	w := newEnv(t)
	before := w.createObject("Secret", "before", nil)
	p := w.applyPolicy(governingPolicy + `{propagate: {decision: Orphan}}`)
	w.waitForHold(before, true)
	after := w.createObject("Secret", "after", nil)
	w.waitForHold(after, true)
	other := w.createConfigMap("other")
	w.patch(p, `{"spec": {"mode": "Monitor"}}`)
	w.waitForHold(before, false)
	w.waitForHold(after, false)
	w.patch(p, `{"spec": {"mode": "Enforce"}}`)
	w.waitForHold(before, true)
	w.patch(before, `{"metadata": {"finalizers": null}}`) // a user removes it
	w.waitForHold(before, true)
	w.forceDelete(p)
	w.waitForHold(before, false)
	w.waitForHold(other, false)
}

func TestPropagate_DecidesAboutDependents(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Orphan, reason: they are data}}`)
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner) // with an explicit Background, as kubectl does
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
	e := w.waitForDecision(owner, "PropagationDecided")
	if e.Policy != "GCPolicy "+w.ns+"/governs" || e.Evaluations[0].Reason != "they are data" {
		t.Errorf("recorded: %+v", e)
	}
}

func TestPropagate_Foreground_ForABackgroundDelete(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground}}`)
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.patch(dependent, `{"metadata": {"finalizers": ["test.gleaner.dev/slow"],
		"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
	w.delete(owner)
	w.eventually(func() error {
		if w.get(dependent).GetDeletionTimestamp() == nil {
			return errorf("dependent is not being deleted; %s", w.describeDecisions(owner))
		}
		return nil
	})
	if live := w.get(owner); !slices.Contains(live.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		t.Errorf("owner did not wait: %v", live.GetFinalizers())
	}
	w.patch(dependent, `{"metadata": {"finalizers": null}}`)
	w.waitForDeletion(dependent, owner)
}

func TestClientRequest_IsRespected(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground}}`)
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.deleteWithPolicy(owner, metav1.DeletePropagationOrphan)
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
}

func TestClientRequest_IsOverridden_WithExplicitOverride(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(governingPolicy + `{propagate: {decision: Orphan}}`)
	w.patch(p, `{"spec": {"explicitPropagation": "Override"}}`)
	w.waitForObserved(p)
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.deleteWithPolicy(owner, metav1.DeletePropagationForeground)
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
}

func TestOverride_OfForeground_MayWait(t *testing.T) {
	for _, decision := range []string{"Foreground", "Background", "Orphan"} {
		t.Run(decision, func(t *testing.T) {
			w := newEnv(t)
			w.applyPolicy(`
kind: PolicyModule
metadata: {name: later}
spec:
  rego:
    inline: |
      package gleaner
      propagate := {"decision": "` + decision + `"} if input.state.asked
      else := {"decision": "Wait", "after": "1s", "state": {"asked": true}}`)
			w.applyPolicy(`
kind: GCPolicy
metadata: {name: governs}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  mode: Enforce
  explicitPropagation: Override
  module: {name: later}
  needs: Reference`)
			owner := w.createHeldSecret()
			dependent := w.createConfigMap("dependent", owner)
			w.patch(dependent, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
			w.deleteWithPolicy(owner, metav1.DeletePropagationForeground)
			w.waitForDecision(owner, "PolicyWaiting")
			w.waitForDeletion(owner)
			if decision == "Orphan" {
				w.waitForNoOwners(dependent)
				return
			}
			w.waitForDeletion(dependent)
		})
	}
}

func TestDependents_ExceptionsByKind(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground, dependents: [{kind: PersistentVolumeClaim, decision: Orphan}]}}`)
	owner := w.createHeldSecret()
	var claims, maps []*unstructured.Unstructured
	for _, name := range []string{"a", "b", "c"} {
		maps = append(maps, w.createConfigMap(name, owner))
		claims = append(claims, w.createClaim(name, owner))
	}
	w.delete(owner)
	w.waitForDeletion(owner)
	w.waitForDeletion(maps...)
	for _, claim := range claims {
		w.waitForNoOwners(claim)
	}
}

func TestDependents_OfSomeKinds_AreDeleted_OthersKept(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Orphan, dependents: [{kind: ConfigMap, decision: Delete}]}}`)
	owner, another := w.createHeldSecret(), w.createConfigMap("another")
	claim, gone, shared := w.createClaim("claim", owner), w.createConfigMap("gone", owner), w.createConfigMap("shared", owner, another)
	w.delete(owner)
	w.waitForDeletion(owner, gone)
	w.waitForNoOwners(claim)
	w.eventually(func() error {
		if refs := w.get(shared).GetOwnerReferences(); len(refs) != 1 || refs[0].Name != "another" {
			return errorf("references: %v", refs)
		}
		return nil
	})
}

func TestHold_IsReleased_WithoutAPolicy(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(governingPolicy + `{propagate: {decision: Wait, after: 1h}}`)
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	w.waitForDecision(owner, "PolicyWaiting")
	if w.get(dependent).GetName() == "" || w.get(owner).GetName() == "" {
		t.Error("owner did not wait")
	}
	w.forceDelete(p)
	w.waitForDeletion(owner, dependent)
}

func TestHold_Stays_DuringAFault(t *testing.T) {
	w := newEnv(t)
	module := w.applyPolicy(`
kind: PolicyModule
metadata: {name: orphans}
spec:
  rego:
    inline: |
      package gleaner
      propagate := {"decision": "Orphan"}`)
	p := w.applyPolicy(`
kind: GCPolicy
metadata: {name: governs}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  mode: Enforce
  module: {name: orphans}
  needs: Reference`)
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.forceDelete(module)
	w.waitForCondition(p, "ModuleReady", metav1.ConditionFalse, "NotFound", "objects that it governs are kept")
	withoutHold := w.createObject("Secret", "unheld", nil) // the module's verdict is unknown
	w.delete(owner)
	w.waitForDecision(owner, "PolicyFault")
	if slices.Contains(w.get(withoutHold).GetFinalizers(), graph.Hold) {
		t.Error("hold was added for a missing module")
	}
	w.patch(p, `{"spec": {"onFault": "Default"}}`)
	w.waitForDeletion(owner, dependent)
}

func TestStateAnnotation_OfAnotherObject_DecidesNothing(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Orphan}}`)
	owner := w.createHeldSecret()
	w.patch(owner, `{"metadata": {"annotations": {"gleaner.dev/memo": "{\"uid\":\"another\",\"references\":\"x\",\"propagation\":{\"policy\":\"p\",\"decision\":\"Background\",\"requested\":\"Unspecified\"}}"}}}`)
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
}

func TestHold_IsAddedOnCreate(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(`
kind: ClusterGCPolicy
metadata: {name: born-held-NS}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  matchConditions: [{name: not-plain, expression: "object.metadata.name != 'plain'"}]
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	n := 0
	w.eventually(func() error { // API servers read it with a delay
		n++
		if o := w.createObject("Secret", errorf("born-%d", n).Error(), nil); !slices.Contains(o.GetFinalizers(), graph.Hold) {
			return errorf("object was created with finalizers %v", o.GetFinalizers())
		}
		return nil
	})
	if o := w.createObject("Secret", "plain", nil); len(o.GetFinalizers()) != 0 {
		t.Errorf("ungoverned object was created with finalizers %v", o.GetFinalizers())
	}
	w.forceDelete(p)
	w.eventually(func() error {
		n++
		if o := w.createObject("Secret", errorf("born-%d", n).Error(), nil); len(o.GetFinalizers()) != 0 {
			return errorf("object was created with finalizers %v", o.GetFinalizers())
		}
		return nil
	})
}
