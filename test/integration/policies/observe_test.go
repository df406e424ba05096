package policies

import (
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// createDaemonSet creates a DaemonSet. Its controller reports the generation that it has observed, until the
// DaemonSet is being deleted. From then on, the test does.
func (w *env) createDaemonSet(name string) *unstructured.Unstructured {
	w.Helper()
	return w.createWorkload("DaemonSet", name, map[string]any{})
}

// createWorkload creates a workload, and waits until its controller has observed it.
func (w *env) createWorkload(kind, name string, spec map[string]any) *unstructured.Unstructured {
	w.Helper()
	labels := map[string]any{"app": name}
	spec["selector"] = map[string]any{"matchLabels": labels}
	spec["template"] = map[string]any{
		"metadata": map[string]any{"labels": labels},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/none"}}},
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	made, err := w.client(o).Create(w.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.eventually(func() error {
		if observed, _, err := unstructured.NestedInt64(w.get(made).Object, "status", "observedGeneration"); err != nil || observed == 0 {
			return errorf("its controller has not observed it: %d, %v", observed, err)
		}
		return nil
	})
	return made
}

// reportObserved sets status.observedGeneration to the object's generation, as its controller does.
func (w *env) reportObserved(o *unstructured.Unstructured) {
	w.Helper()
	status := `{"status": {"observedGeneration": ` + strconv.FormatInt(w.get(o).GetGeneration(), 10) + `}}`
	if _, err := w.client(o).Patch(w.Context(), o.GetName(), types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		w.Fatal(err)
	}
}

const orphansDaemonSets = `
kind: GCPolicy
metadata: {name: governs}
spec:
  resources: [{apiGroups: [apps], resources: [daemonsets]}]
  mode: Enforce
  fixed: {propagate: {decision: Orphan}}`

// deleteOrphaning deletes a DaemonSet whose dependents a policy orphans, and returns it with its dependent.
func (w *env) deleteOrphaning() (owner, dependent *unstructured.Unstructured) {
	w.Helper()
	w.applyPolicy(orphansDaemonSets)
	owner = w.createDaemonSet("owner")
	w.waitForHold(owner, true)
	dependent = w.createConfigMap("dependent", owner)
	w.delete(owner)
	return owner, dependent
}

// Dependents are orphaned only after the controller of their owner has observed the deletion.
func TestObservedGeneration_IsWaitedForByAPolicyThatOrphans(t *testing.T) {
	w := newEnv(t)
	owner, dependent := w.deleteOrphaning()
	e := w.waitForDecision(owner, "DeletionNotObserved")
	if live := w.get(dependent); len(live.GetOwnerReferences()) != 1 || live.GetDeletionTimestamp() != nil {
		t.Errorf("it was not waited for: %v; recorded %+v", live.GetOwnerReferences(), e)
	}
	adopted := w.createConfigMap("adopted", owner) // as the controller may do until then
	w.reportObserved(owner)
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
	w.waitForNoOwners(adopted)
}

// The same if a client asks for it and no policy governs the owner. The built-in collector doesn't wait.
func TestObservedGeneration_IsWaitedForIfAClientOrphans(t *testing.T) {
	if *companionMode {
		t.Skip("the built-in collector orphans what a client has it orphan")
	}
	w := newEnv(t)
	owner := w.createDaemonSet("owner")
	dependent := w.createConfigMap("dependent", owner)
	w.deleteWithPolicy(owner, metav1.DeletePropagationOrphan)
	w.waitForDecision(owner, "DeletionNotObserved")
	if live := w.get(dependent); len(live.GetOwnerReferences()) != 1 {
		t.Errorf("it was not waited for: %v", live.GetOwnerReferences())
	}
	w.reportObserved(owner)
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
}

// A controller that never observes it, as that of DaemonSets, is waited for until the timeout, which an event
// reports.
func TestObservedGeneration_IsWaitedForUntilTheTimeout(t *testing.T) {
	w := newEnv(t)
	owner, dependent := w.deleteOrphaning()
	w.waitForDecision(owner, "ObserveTimedOut")
	w.waitForEvent(owner, "ObserveTimedOut", "within 10s: it may adopt dependents again")
	w.waitForDeletion(owner)
	w.waitForNoOwners(dependent)
}
