package policies

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// governing is a policy that governs the Secrets of a test, so that its ConfigMaps
// are free to depend on them.
const governing = `
kind: GCPolicy
metadata: {name: governs}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  mode: Enforce
  fixed: `

// held waits until an object has a hold, or has none.
func (w *world) held(o *unstructured.Unstructured, wanted bool) {
	w.Helper()
	w.eventually(func() error {
		if is := slices.Contains(w.get(o).GetFinalizers(), graph.Hold); is != wanted {
			return errorf("%s has a hold: %t; %s", o.GetName(), is, w.decisions(o))
		}
		return nil
	})
}

// secret makes an owner that is governed, and waits for its hold.
func (w *world) secret() *unstructured.Unstructured {
	w.Helper()
	o := w.object("Secret", "owner", nil)
	w.held(o, true)
	return o
}

// free waits until an object is there without references to owners.
func (w *world) free(o *unstructured.Unstructured) {
	w.Helper()
	w.eventually(func() error {
		live := w.get(o)
		if live.GetName() == "" {
			w.Fatalf("%s is gone; %s", o.GetName(), w.decisions(o))
		}
		if refs := live.GetOwnerReferences(); len(refs) != 0 {
			return errorf("%s: %v", o.GetName(), refs)
		}
		return nil
	})
}

func TestAHoldComesAndGoesWithThePolicy(t *testing.T) {
	w := newWorld(t)
	before := w.object("Secret", "before", nil)
	p := w.policy(governing + `{propagate: {decision: Orphan}}`)
	w.held(before, true)
	after := w.object("Secret", "after", nil)
	w.held(after, true)
	other := w.make("other")
	w.patch(p, `{"spec": {"mode": "Monitor"}}`)
	w.held(before, false)
	w.held(after, false)
	w.patch(p, `{"spec": {"mode": "Enforce"}}`)
	w.held(before, true)
	w.patch(before, `{"metadata": {"finalizers": null}}`) // somebody takes it off
	w.held(before, true)
	w.remove(p)
	w.held(before, false)
	w.held(other, false)
}

func TestAPolicyDecidesWhatBecomesOfTheDependents(t *testing.T) {
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Orphan, reason: they are data}}`)
	owner := w.secret()
	dependent := w.make("dependent", owner)
	w.delete(owner) // as kubectl does: Background, explicitly
	w.goes(owner)
	w.free(dependent)
	e := w.decided(owner, "PropagationDecided")
	if e.Policy != "GCPolicy "+w.ns+"/governs" || e.Asked[0].Reason != "they are data" {
		t.Errorf("recorded: %+v", e)
	}
}

func TestForegroundIsDecidedForAnOwnerThatIsDeletedInBackground(t *testing.T) {
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Foreground}}`)
	owner := w.secret()
	dependent := w.make("dependent", owner)
	w.patch(dependent, `{"metadata": {"finalizers": ["test.gleaner.dev/slow"],
		"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
	w.delete(owner)
	w.eventually(func() error {
		if w.get(dependent).GetDeletionTimestamp() == nil {
			return errorf("the dependent is not being deleted; %s", w.decisions(owner))
		}
		return nil
	})
	if live := w.get(owner); !slices.Contains(live.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		t.Errorf("the owner has not waited: %v", live.GetFinalizers())
	}
	w.patch(dependent, `{"metadata": {"finalizers": null}}`)
	w.goes(dependent, owner)
}

func TestWhatAClientAskedForIsRespected(t *testing.T) {
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Foreground}}`)
	owner := w.secret()
	dependent := w.make("dependent", owner)
	w.deleteBy(owner, metav1.DeletePropagationOrphan)
	w.goes(owner)
	w.free(dependent)
}

func TestWhatAClientAskedForIsOverriddenWhereThePolicySaysSo(t *testing.T) {
	w := newWorld(t)
	p := w.policy(governing + `{propagate: {decision: Orphan}}`)
	w.patch(p, `{"spec": {"explicit": "Override"}}`)
	w.policyObserved(p)
	owner := w.secret()
	dependent := w.make("dependent", owner)
	w.deleteBy(owner, metav1.DeletePropagationForeground)
	w.goes(owner)
	w.free(dependent)
}

func TestAPolicyThatOverridesAForegroundMayTakeItsTime(t *testing.T) {
	for _, decision := range []string{"Foreground", "Background", "Orphan"} {
		t.Run(decision, func(t *testing.T) {
			w := newWorld(t)
			w.policy(`
kind: PolicyModule
metadata: {name: later}
spec:
  rego:
    inline: |
      package gleaner
      propagate := {"decision": "` + decision + `"} if input.state.asked
      else := {"decision": "Wait", "after": "1s", "state": {"asked": true}}`)
			w.policy(`
kind: GCPolicy
metadata: {name: governs}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  mode: Enforce
  explicit: Override
  module: {name: later}
  needs: Reference`)
			owner := w.secret()
			dependent := w.make("dependent", owner)
			w.patch(dependent, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
			w.deleteBy(owner, metav1.DeletePropagationForeground)
			w.decided(owner, "WaitsByPolicy")
			w.goes(owner)
			if decision == "Orphan" {
				w.free(dependent)
				return
			}
			w.goes(dependent)
		})
	}
}

func TestDependentsOfSomeKindsAreExceptions(t *testing.T) {
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Foreground, dependents: [{kind: PersistentVolumeClaim, decision: Orphan}]}}`)
	owner := w.secret()
	var claims, maps []*unstructured.Unstructured
	for _, name := range []string{"a", "b", "c"} {
		maps = append(maps, w.make(name, owner))
		claims = append(claims, w.claim(name, owner))
	}
	w.delete(owner)
	w.goes(owner)
	w.goes(maps...)
	for _, claim := range claims {
		w.free(claim)
	}
}

func TestDependentsOfSomeKindsGoThoughTheRestIsKept(t *testing.T) {
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Orphan, dependents: [{kind: ConfigMap, decision: Delete}]}}`)
	owner, another := w.secret(), w.make("another")
	claim, gone, shared := w.claim("claim", owner), w.make("gone", owner), w.make("shared", owner, another)
	w.delete(owner)
	w.goes(owner, gone)
	w.free(claim)
	w.eventually(func() error {
		if refs := w.get(shared).GetOwnerReferences(); len(refs) != 1 || refs[0].Name != "another" {
			return errorf("references: %v", refs)
		}
		return nil
	})
}

func TestAHeldObjectIsLetGoOnceNoPolicyGovernsIt(t *testing.T) {
	w := newWorld(t)
	p := w.policy(governing + `{propagate: {decision: Wait, after: 1h}}`)
	owner := w.secret()
	dependent := w.make("dependent", owner)
	w.delete(owner)
	w.decided(owner, "WaitsByPolicy")
	if w.get(dependent).GetName() == "" || w.get(owner).GetName() == "" {
		t.Error("nobody has waited")
	}
	w.remove(p)
	w.goes(owner, dependent)
}

func TestAHoldStaysWhileItsPolicyIsAtFault(t *testing.T) {
	w := newWorld(t)
	module := w.policy(`
kind: PolicyModule
metadata: {name: orphans}
spec:
  rego:
    inline: |
      package gleaner
      propagate := {"decision": "Orphan"}`)
	p := w.policy(`
kind: GCPolicy
metadata: {name: governs}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  mode: Enforce
  module: {name: orphans}
  needs: Reference`)
	owner := w.secret()
	dependent := w.make("dependent", owner)
	w.remove(module)
	w.says(p, "ModuleReady", metav1.ConditionFalse, "NotFound", "objects that it governs are kept")
	unheld := w.object("Secret", "unheld", nil) // nobody knows what the module would answer
	w.delete(owner)
	w.decided(owner, "PolicyAtFault")
	if slices.Contains(w.get(unheld).GetFinalizers(), graph.Hold) {
		t.Error("a hold was placed for a module that is not there")
	}
	w.patch(p, `{"spec": {"onFault": "Default"}}`)
	w.goes(owner, dependent)
}

func TestAnAnnotationOfAnotherObjectDecidesNothing(t *testing.T) {
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Orphan}}`)
	owner := w.secret()
	w.patch(owner, `{"metadata": {"annotations": {"gleaner.dev/memo": "{\"uid\":\"another\",\"references\":\"x\",\"propagation\":{\"policy\":\"p\",\"decision\":\"Background\",\"requested\":\"Unspecified\"}}"}}}`)
	dependent := w.make("dependent", owner)
	w.delete(owner)
	w.goes(owner)
	w.free(dependent)
}

func TestAHoldIsThereAsSoonAsTheObjectIs(t *testing.T) {
	w := newWorld(t)
	p := w.policy(`
kind: ClusterGCPolicy
metadata: {name: born-held-NS}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
  matchConditions: [{name: not-plain, expression: "object.metadata.name != 'plain'"}]
  fixed: {propagate: {decision: Orphan}}
  mode: Enforce`)
	w.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	n := 0
	w.eventually(func() error { // API servers take a moment to know of it
		n++
		if o := w.object("Secret", errorf("born-%d", n).Error(), nil); !slices.Contains(o.GetFinalizers(), graph.Hold) {
			return errorf("created with %v", o.GetFinalizers())
		}
		return nil
	})
	if o := w.object("Secret", "plain", nil); len(o.GetFinalizers()) != 0 {
		t.Errorf("one that is not governed was created with %v", o.GetFinalizers())
	}
	w.remove(p)
	w.eventually(func() error {
		n++
		if o := w.object("Secret", errorf("born-%d", n).Error(), nil); len(o.GetFinalizers()) != 0 {
			return errorf("created with %v", o.GetFinalizers())
		}
		return nil
	})
}
