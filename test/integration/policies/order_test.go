package policies

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// waitForTerminating waits until an object is being deleted.
func (w *env) waitForTerminating(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	var live *unstructured.Unstructured
	w.eventually(func() error {
		if live = w.get(o); live.GetDeletionTimestamp() == nil {
			return errorf("%s is not being deleted; %s", o.GetName(), w.describeDecisions(o))
		}
		return nil
	})
	return live
}

// verifyUntouched verifies that objects exist and are not being deleted.
func (w *env) verifyUntouched(objects ...*unstructured.Unstructured) {
	w.Helper()
	for _, o := range objects {
		if live := w.get(o); live.GetUID() != o.GetUID() || live.GetDeletionTimestamp() != nil {
			w.Errorf("%s %s is being deleted before its turn; %s", o.GetKind(), o.GetName(), w.describeDecisions(o))
		}
	}
}

// removeFinalizers lets an object go that a test has kept.
func (w *env) removeFinalizers(o *unstructured.Unstructured) {
	w.Helper()
	w.patch(o, `{"metadata": {"finalizers": null}}`)
}

const slow = `{"metadata": {"finalizers": ["test.gleaner.dev/slow"]}}`

// Dependents of each wave are deleted when nothing of the earlier ones is left, whether they block the
// deletion of their owner or not, and kinds that are in no wave come last.
func TestOrder_DeletesWaveByWave(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground, order: [[{kind: ConfigMap}], [{kind: PersistentVolumeClaim}]]}}`)
	owner, another := w.createHeldSecret(), w.createConfigMap("another")
	first, shared := w.createConfigMap("first", owner), w.createConfigMap("shared", owner, another)
	second, last := w.createClaim("second", owner), w.createObject("ServiceAccount", "last", nil, owner)
	w.patch(first, slow)
	w.patch(second, slow)
	w.patch(last, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "`+string(owner.GetUID())+`", "blockOwnerDeletion": true}]}}`)
	w.delete(owner)
	w.waitForTerminating(first)
	w.waitForDecision(owner, "DependentsInOrder")
	w.eventually(func() error { // it has another owner
		if refs := w.get(shared).GetOwnerReferences(); len(refs) != 1 || refs[0].Name != "another" {
			return errorf("references: %v", refs)
		}
		return nil
	})
	w.verifyUntouched(second, last, shared)
	w.removeFinalizers(first)
	w.waitForTerminating(second)
	w.verifyUntouched(last)
	if w.get(first).GetName() != "" || w.get(owner).GetName() == "" {
		t.Error("the first wave is left, or the owner didn't wait")
	}
	w.removeFinalizers(w.get(second)) // also that of claims in use: no controller removes it here
	w.waitForDeletion(second, last, owner)
	w.verifyUntouched(shared, another)
}

// A client's explicit foreground deletion doesn't disturb the order of a policy that overrides it.
func TestOrder_OfAnOverriddenRequest(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground, order: [[{kind: ConfigMap}], [{kind: PersistentVolumeClaim}]]}}`)
	w.patch(p, `{"spec": {"explicitPropagation": "Override"}}`)
	w.waitForObserved(p)
	owner := w.createHeldSecret()
	first, second := w.createConfigMap("first", owner), w.createClaim("second", owner)
	w.patch(first, slow)
	w.patch(second, slow)
	w.deleteWithPolicy(owner, metav1.DeletePropagationForeground)
	w.waitForTerminating(first)
	w.waitForDecision(owner, "DependentsInOrder")
	w.verifyUntouched(second)
	w.removeFinalizers(first)
	w.waitForTerminating(second)
	w.removeFinalizers(w.get(second))
	w.waitForDeletion(first, second, owner)
}

func TestOrder_OfAnUnknownKindKeepsEverything(t *testing.T) {
	w := newEnv(t)
	p := w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground, order: [[{kind: Config}]]}}`)
	w.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "NotServed", "it governs is kept when it is deleted: Config.")
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	e := w.waitForDecision(owner, "PolicyFault")
	if want := "the order has kind Config, which is not served"; len(e.Message) < len(want) || e.Message[:len(want)] != want {
		t.Errorf("recorded: %+v", e)
	}
	w.verifyUntouched(dependent)
	w.patch(p, `{"spec": {"fixed": {"propagate": {"order": [[{"kind": "ConfigMap"}]]}}}}`)
	w.waitForDeletion(owner, dependent)
}

// createPod creates a Pod.
func (w *env) createPod(name string, metadata, spec map[string]any) *unstructured.Unstructured {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/none"}}},
	}}
	maps.Copy(o.Object["metadata"].(map[string]any), metadata)
	maps.Copy(o.Object["spec"].(map[string]any), spec)
	made, err := w.client(o).Create(w.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.forceDelete(made) })
	return made
}

// What an exception keeps is in no wave, and is not deleted with the other kinds that are in none.
func TestOrder_KeepsWhatIsExcepted(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Foreground, gracePeriodSeconds: 60, order: [[{kind: ConfigMap}]], dependents: [{kind: PersistentVolumeClaim, decision: Orphan}]}}`)
	owner := w.createHeldSecret()
	first, last, kept := w.createConfigMap("first", owner), w.createObject("ServiceAccount", "last", nil, owner), w.createClaim("kept", owner)
	w.delete(owner)
	w.waitForDeletion(first, last, owner)
	w.waitForNoOwners(kept)
	w.verifyUntouched(kept)
}
