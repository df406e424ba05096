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

// judge goes through all that happened, and returns what must not have.
func (w *witness) judge() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrongs []string
	for uid, states := range w.history {
		for i := 1; i < len(states); i++ {
			before, after := states[i-1], states[i]
			for _, wrong := range slices.Concat(
				w.wrongDelete(uid, before, after), w.wrongDrop(before, after), w.wrongRelease(uid, before, after),
			) {
				o := before.object
				wrongs = append(wrongs, fmt.Sprintf("%s %s at %d: %s", o.GetKind(), o.GetName(), after.version, wrong))
			}
		}
	}
	slices.Sort(wrongs)
	return wrongs
}

// wrongDelete objects to a deletion, which somebody else than the test asked
// for, of an object with an owner that stood, or that nobody could read.
func (w *witness) wrongDelete(uid types.UID, before, after state) []string {
	_, lost := w.lost[before.object.GroupVersionKind().GroupKind()]
	if ending(before.object) || !after.gone && !ending(after.object) || w.excused[uid] > 0 || lost {
		return nil
	}
	refs := before.object.GetOwnerReferences()
	if len(refs) == 0 {
		return []string{"was deleted, and has no owner"}
	}
	var wrongs []string
	for _, ref := range refs {
		if standing := w.standing(before.object, ref, after); standing != "" {
			wrongs = append(wrongs, fmt.Sprintf("was deleted, while its owner %s %s %s", ref.Kind, ref.Name, standing))
		}
	}
	return wrongs
}

// wrongDrop objects to an owner reference that somebody else than the test has
// taken off, while the owner stood and did not orphan.
func (w *witness) wrongDrop(before, after state) []string {
	if _, ours := w.ours[after.object.GetResourceVersion()]; ours || after.gone {
		return nil
	}
	var wrongs []string
	for _, ref := range before.object.GetOwnerReferences() {
		kept := slices.ContainsFunc(after.object.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
			return r.UID == ref.UID && r.Name == ref.Name && r.Kind == ref.Kind
		})
		if kept || w.orphans(ref.UID, after) {
			continue
		}
		if standing := w.standing(before.object, ref, after); standing != "" {
			wrongs = append(wrongs, fmt.Sprintf("lost its reference, while its owner %s %s %s", ref.Kind, ref.Name, standing))
		}
	}
	return wrongs
}

// wrongRelease objects to an owner that was let go before a dependent that
// blocks it, or orphans and was let go before it had left each dependent. One
// that the test deletes more than once may change its mind at any time.
func (w *witness) wrongRelease(uid types.UID, before, after state) []string {
	o := before.object
	_, lost := w.lost[o.GroupVersionKind().GroupKind()]
	if !ending(o) || w.excused[uid] > 1 || lost {
		return nil
	}
	orphaned := has(o, metav1.FinalizerOrphanDependents)
	waited := has(o, metav1.FinalizerDeleteDependents) && !orphaned
	if !after.gone && (orphaned && has(after.object, metav1.FinalizerOrphanDependents) ||
		waited && has(after.object, metav1.FinalizerDeleteDependents)) {
		return nil
	}
	var wrongs []string
	for dependent := range w.history {
		there, ok := w.at(dependent, after)
		if !ok || there.gone {
			continue
		}
		for _, ref := range there.object.GetOwnerReferences() {
			if ref.UID == uid && fits(there.object, ref, o) && (orphaned || waited && ptr.Deref(ref.BlockOwnerDeletion, false)) {
				wrongs = append(wrongs, "was let go before its dependent "+there.object.GetName())
			}
		}
	}
	return wrongs
}

// standing says how an owner stood when something happened; "" if it did not.
func (w *witness) standing(dependent *unstructured.Unstructured, ref metav1.OwnerReference, when state) string {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	k, known := w.kinds[gvk]
	switch {
	case !known:
		return "is of a type that nobody can read"
	case k.namespaced && dependent.GetNamespace() == "":
		return "can't be found, for want of a namespace"
	}
	owner, ok := w.at(ref.UID, when)
	if !ok || owner.gone || !fits(dependent, ref, owner.object) {
		return ""
	}
	waits := ending(owner.object) && has(owner.object, metav1.FinalizerDeleteDependents) && !has(owner.object, metav1.FinalizerOrphanDependents)
	if waits || w.unseen(ref.UID, owner) {
		return ""
	}
	return fmt.Sprintf("stood, at %d, with finalizers %v", owner.version, owner.object.GetFinalizers())
}

// orphans reports whether an object was leaving its dependents when something
// happened, or had left.
func (w *witness) orphans(uid types.UID, when state) bool {
	owner, ok := w.at(uid, when)
	return ok && ending(owner.object) && has(owner.object, metav1.FinalizerOrphanDependents)
}

// at returns an object as it was just before something happened. Of two whose
// end was only noticed later, nobody knows which was first.
func (w *witness) at(uid types.UID, when state) (state, bool) {
	var last state
	found := false
	for _, s := range w.history[uid] {
		if s.version < when.version || s.version == when.version && s.guessed {
			last, found = s, true
		}
	}
	return last, found
}

// unseen reports whether an object may have been another after a state than that, since
// it has changed while there was no watch: the API server ends those of a custom type as
// it likes.
func (w *witness) unseen(uid types.UID, last state) bool {
	for _, s := range w.history[uid] {
		if s.version > last.version {
			return s.guessed && !s.gone
		}
	}
	return false
}

// fits reports whether an object is where a reference says.
func fits(dependent *unstructured.Unstructured, ref metav1.OwnerReference, owner *unstructured.Unstructured) bool {
	return owner.GetName() == ref.Name &&
		owner.GroupVersionKind().GroupKind() == schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() &&
		(owner.GetNamespace() == "" || owner.GetNamespace() == dependent.GetNamespace())
}

func ending(o *unstructured.Unstructured) bool { return o.GetDeletionTimestamp() != nil }

func has(o *unstructured.Unstructured, finalizer string) bool {
	return slices.Contains(o.GetFinalizers(), finalizer)
}

// The witness itself has to object to what is wrong, and to that alone.
func TestWitnessObjects(t *testing.T) {
	for name, c := range map[string]struct {
		history []*unstructured.Unstructured // of objects by UID, in order; one called "gone" ends the last of its UID
		want    string
	}{
		"not to a dependent that follows its owner": {[]*unstructured.Unstructured{
			brief("o", 1), brief("d", 2, "o"), over("o", 3), over("d", 4, "o")}, ""},
		"to a dependent that goes before its owner": {[]*unstructured.Unstructured{
			brief("o", 1), brief("d", 2, "o"), over("d", 3, "o"), over("o", 4)}, "was deleted, while its owner ConfigMap o stood"},
		"to an object that has no owner": {[]*unstructured.Unstructured{
			brief("d", 2), over("d", 3)}, "has no owner"},
		"to a lost reference": {[]*unstructured.Unstructured{
			brief("o", 1), brief("d", 2, "o"), brief("d", 3)}, "lost its reference"},
		"to an owner that does not wait": {[]*unstructured.Unstructured{
			brief("o", 1), brief("d", 2, "o"), finalized(brief("o", 3), metav1.FinalizerDeleteDependents), over("o", 4)}, "was let go before its dependent d"},
		"to an owner that does not orphan": {[]*unstructured.Unstructured{
			brief("o", 1), brief("d", 2, "o"), finalized(brief("o", 3), metav1.FinalizerOrphanDependents), over("o", 4)}, "was let go before its dependent d"},
		"not to one that does": {[]*unstructured.Unstructured{
			brief("o", 1), brief("d", 2, "o"), finalized(brief("o", 3), metav1.FinalizerOrphanDependents), brief("d", 4), over("o", 5)}, ""},
		"not to what may have been meanwhile, and nobody has seen": {[]*unstructured.Unstructured{
			brief("o", 1), brief("d", 2, "o"), over("d", 4), listed(brief("o", 6))}, ""},
		"to what was so for as long": {[]*unstructured.Unstructured{
			brief("o", 1), brief("d", 2, "o"), over("d", 4), brief("o", 5), listed(brief("o", 6))}, "was deleted, while its owner ConfigMap o stood"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWitness(t.Context(), nil, "ns")
			w.kinds[configMap.gvk()] = configMap
			w.excuse("o")
			for _, o := range c.history {
				w.note(o, o.GetLabels()["gone"] != "", o.GetLabels()["listed"] != "")
			}
			got := strings.Join(w.judge(), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}

// brief makes an object whose UID is its name, with owners that it blocks.
func brief(name string, version int, owners ...string) *unstructured.Unstructured {
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

func over(name string, version int, owners ...string) *unstructured.Unstructured {
	o := brief(name, version, owners...)
	o.SetLabels(map[string]string{"gone": "yes"})
	return o
}

func listed(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetLabels(map[string]string{"listed": "yes"})
	return o
}

func finalized(o *unstructured.Unstructured, finalizer string) *unstructured.Unstructured {
	o.SetDeletionTimestamp(&metav1.Time{})
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	o.SetFinalizers([]string{finalizer})
	return o
}
