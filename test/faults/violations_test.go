package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// violations checks the history, and returns all violations.
func (w *auditor) violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrongs []string
	for uid, states := range w.history {
		for i := 1; i < len(states); i++ {
			before, after := states[i-1], states[i]
			for _, wrong := range slices.Concat(
				w.deleteViolations(uid, before, after), w.referenceViolations(before, after), w.releaseViolations(uid, before, after),
			) {
				o := before.object
				wrongs = append(wrongs, fmt.Sprintf("%s %s at %d: %s", o.GetKind(), o.GetName(), after.version, wrong))
			}
		}
	}
	slices.Sort(wrongs)
	return wrongs
}

// deleteViolations reports deletions, not requested by the test, of an object with an owner that
// existed or could not be read.
func (w *auditor) deleteViolations(uid types.UID, before, after state) []string {
	_, lost := w.removedTypes[before.object.GroupVersionKind().GroupKind()]
	if isTerminating(before.object) || !after.gone && !isTerminating(after.object) || w.allowedDeletes[uid] > 0 || lost {
		return nil
	}
	refs := before.object.GetOwnerReferences()
	if len(refs) == 0 {
		return []string{"was deleted without having an owner"}
	}
	var wrongs []string
	for _, ref := range refs {
		if standing := w.describeOwner(before.object, ref, after); standing != "" {
			wrongs = append(wrongs, fmt.Sprintf("was deleted while its owner %s %s %s", ref.Kind, ref.Name, standing))
		}
	}
	return wrongs
}

// referenceViolations reports owner references removed by others than the test
// while the owner existed and did not orphan.
func (w *auditor) referenceViolations(before, after state) []string {
	if _, own := w.ownWrites[after.object.GetResourceVersion()]; own || after.gone {
		return nil
	}
	var wrongs []string
	for _, ref := range before.object.GetOwnerReferences() {
		kept := slices.ContainsFunc(after.object.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
			return r.UID == ref.UID && r.Name == ref.Name && r.Kind == ref.Kind
		})
		if kept || w.isOrphaning(ref.UID, after) {
			continue
		}
		if standing := w.describeOwner(before.object, ref, after); standing != "" {
			wrongs = append(wrongs, fmt.Sprintf("lost its reference while its owner %s %s %s", ref.Kind, ref.Name, standing))
		}
	}
	return wrongs
}

// releaseViolations reports owners that were released before a blocking dependent was gone, or,
// with the orphan finalizer, before all dependents were orphaned. For an owner that
// the test deletes more than once, the policy may change at any time.
func (w *auditor) releaseViolations(uid types.UID, before, after state) []string {
	o := before.object
	_, lost := w.removedTypes[o.GroupVersionKind().GroupKind()]
	if !isTerminating(o) || w.allowedDeletes[uid] > 1 || lost {
		return nil
	}
	orphaned := hasFinalizer(o, metav1.FinalizerOrphanDependents)
	waited := hasFinalizer(o, metav1.FinalizerDeleteDependents) && !orphaned
	if !after.gone && (orphaned && hasFinalizer(after.object, metav1.FinalizerOrphanDependents) ||
		waited && hasFinalizer(after.object, metav1.FinalizerDeleteDependents)) {
		return nil
	}
	var wrongs []string
	for dependent := range w.history {
		there, ok := w.stateBefore(dependent, after)
		if !ok || there.gone {
			continue
		}
		for _, ref := range there.object.GetOwnerReferences() {
			if ref.UID == uid && matchesRef(there.object, ref, o) && (orphaned || waited && ptr.Deref(ref.BlockOwnerDeletion, false)) {
				wrongs = append(wrongs, "was released before its dependent "+there.object.GetName())
			}
		}
	}
	return wrongs
}

// describeOwner describes an existing owner at the time of a state; "" if it did not exist.
func (w *auditor) describeOwner(dependent *unstructured.Unstructured, ref metav1.OwnerReference, when state) string {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	k, known := w.kinds[gvk]
	switch {
	case !known:
		return "is of a type that can't be read"
	case k.namespaced && dependent.GetNamespace() == "":
		return "can't be found without a namespace"
	}
	owner, ok := w.stateBefore(ref.UID, when)
	if !ok || owner.gone || !matchesRef(dependent, ref, owner.object) {
		return ""
	}
	waits := isTerminating(owner.object) && hasFinalizer(owner.object, metav1.FinalizerDeleteDependents) && !hasFinalizer(owner.object, metav1.FinalizerOrphanDependents)
	if waits || w.mayHaveChanged(ref.UID, owner) {
		return ""
	}
	return fmt.Sprintf("existed at version %d with finalizers %v", owner.version, owner.object.GetFinalizers())
}

// isOrphaning reports whether an object was orphaning its dependents at the time of a state,
// or had done so.
func (w *auditor) isOrphaning(uid types.UID, when state) bool {
	owner, ok := w.stateBefore(uid, when)
	return ok && isTerminating(owner.object) && hasFinalizer(owner.object, metav1.FinalizerOrphanDependents)
}

// stateBefore returns an object as it was just before a state. If the deletions of both
// were only detected later, their order is unknown.
func (w *auditor) stateBefore(uid types.UID, when state) (state, bool) {
	var last state
	found := false
	for _, s := range w.history[uid] {
		if s.version < when.version || s.version == when.version && s.inferred {
			last, found = s, true
		}
	}
	return last, found
}

// mayHaveChanged reports whether an object may have changed after a state without being seen, since
// there was no watch: the API server ends watches of a custom type at
// any time.
func (w *auditor) mayHaveChanged(uid types.UID, last state) bool {
	for _, s := range w.history[uid] {
		if s.version > last.version {
			return s.inferred && !s.gone
		}
	}
	return false
}

// matchesRef reports whether an owner is where a reference points.
func matchesRef(dependent *unstructured.Unstructured, ref metav1.OwnerReference, owner *unstructured.Unstructured) bool {
	return owner.GetName() == ref.Name &&
		owner.GroupVersionKind().GroupKind() == schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() &&
		(owner.GetNamespace() == "" || owner.GetNamespace() == dependent.GetNamespace())
}

func isTerminating(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil }

func hasFinalizer(o *unstructured.Unstructured, finalizer string) bool {
	return slices.Contains(o.GetFinalizers(), finalizer)
}

// The auditor must report violations, and nothing else.
func TestAuditor_ReportsViolations(t *testing.T) {
	for name, c := range map[string]struct {
		history []*unstructured.Unstructured // of objects by UID, in order
		want    string
	}{
		"no violation: a dependent is deleted after its owner": {[]*unstructured.Unstructured{
			historyObject("o", 1), historyObject("d", 2, "o"), deletedObject("o", 3), deletedObject("d", 4, "o")}, ""},
		"a dependent is deleted before its owner": {[]*unstructured.Unstructured{
			historyObject("o", 1), historyObject("d", 2, "o"), deletedObject("d", 3, "o"), deletedObject("o", 4)}, "was deleted while its owner ConfigMap o existed"},
		"an object without an owner is deleted": {[]*unstructured.Unstructured{
			historyObject("d", 2), deletedObject("d", 3)}, "without having an owner"},
		"a reference is lost": {[]*unstructured.Unstructured{
			historyObject("o", 1), historyObject("d", 2, "o"), historyObject("d", 3)}, "lost its reference while"},
		"an owner does not wait": {[]*unstructured.Unstructured{
			historyObject("o", 1), historyObject("d", 2, "o"), withFinalizer(historyObject("o", 3), metav1.FinalizerDeleteDependents), deletedObject("o", 4)}, "was released before its dependent d"},
		"an owner does not orphan": {[]*unstructured.Unstructured{
			historyObject("o", 1), historyObject("d", 2, "o"), withFinalizer(historyObject("o", 3), metav1.FinalizerOrphanDependents), deletedObject("o", 4)}, "was released before its dependent d"},
		"no violation: an owner orphans": {[]*unstructured.Unstructured{
			historyObject("o", 1), historyObject("d", 2, "o"), withFinalizer(historyObject("o", 3), metav1.FinalizerOrphanDependents), historyObject("d", 4), deletedObject("o", 5)}, ""},
		"no violation: it may have changed unseen": {[]*unstructured.Unstructured{
			historyObject("o", 1), historyObject("d", 2, "o"), deletedObject("d", 4), fromList(historyObject("o", 6))}, ""},
		"an owner existed all the time": {[]*unstructured.Unstructured{
			historyObject("o", 1), historyObject("d", 2, "o"), deletedObject("d", 4), historyObject("o", 5), fromList(historyObject("o", 6))}, "was deleted while its owner ConfigMap o existed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAuditor(t.Context(), nil, "ns")
			w.kinds[configMap.gvk()] = configMap
			w.allowDelete("o")
			for _, o := range c.history {
				w.record(o, o.GetLabels()["gone"] != "", o.GetLabels()["listed"] != "")
			}
			got := strings.Join(w.violations(), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// historyObject returns an object whose UID is its name, with owners that it blocks.
func historyObject(name string, version int, owners ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(configMap.gvk())
	o.SetName(name)
	o.SetNamespace("ns")
	o.SetUID(types.UID(name))
	o.SetResourceVersion(fmt.Sprint(version))
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID(owner), BlockOwnerDeletion: ptr.To(true)})
	}
	o.SetOwnerReferences(refs)
	return o
}

func deletedObject(name string, version int, owners ...string) *unstructured.Unstructured {
	o := historyObject(name, version, owners...)
	o.SetLabels(map[string]string{"gone": "yes"})
	return o
}

func fromList(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetLabels(map[string]string{"listed": "yes"})
	return o
}

func withFinalizer(o *unstructured.Unstructured, finalizer string) *unstructured.Unstructured {
	o.SetDeletionTimestamp(&metav1.Time{})
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	o.SetFinalizers([]string{finalizer})
	return o
}
