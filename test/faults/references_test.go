package faults

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Each wrong reference is tested alone, together with a good one, and with a UID that good
// references of other objects have, too: these must not be affected (3.1).
func TestG34_G36_G37_3_1_InvalidReferences_AffectNoOthers(t *testing.T) {
	w := newEnv(t)
	elsewhere := newEnvOn(t, w.testbed)
	owner, live := w.create(objectSpec{name: "owner"}), w.create(objectSpec{name: "live"})
	foreign := elsewhere.create(objectSpec{name: "foreign"})
	v1 := configMap.resource.GroupVersion()
	w.auditor.addKinds(&kind{resource: v1.WithResource("secrets"), kind: "Secret", namespaced: true},
		&kind{resource: v1.WithResource("namespaces"), kind: "Namespace"})
	change := func(change func(*metav1.OwnerReference)) metav1.OwnerReference {
		ref := ownerRefs(owner)[0]
		change(&ref)
		return ref
	}
	var goes, stays []*unstructured.Unstructured
	for name, c := range map[string]struct {
		ref    metav1.OwnerReference
		absent bool // the owner is proven to be absent
	}{
		"kind":           {change(func(r *metav1.OwnerReference) { r.Kind = "Unheard" }), false},
		"group":          {change(func(r *metav1.OwnerReference) { r.APIVersion = "unheard.gleaner.dev/v1" }), false},
		"version":        {change(func(r *metav1.OwnerReference) { r.APIVersion = "v2" }), false},
		"name":           {change(func(r *metav1.OwnerReference) { r.Name = "nobody" }), true},
		"other-kind":     {change(func(r *metav1.OwnerReference) { r.Kind = "Secret" }), true},
		"no-path":        {change(func(r *metav1.OwnerReference) { r.Name = "../secrets/x" }), false},
		"uid":            {refsWithUnknownUID(owner)[0], true},
		"odd-uid":        {change(func(r *metav1.OwnerReference) { r.UID = "not a uuid" }), true},
		"elsewhere":      {ownerRefs(foreign)[0], true},
		"cluster-scoped": {metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: w.ns, UID: "no-such-namespace"}, true},
	} {
		alone := w.create(objectSpec{name: "alone-" + name, owners: []metav1.OwnerReference{c.ref}})
		control := w.create(objectSpec{name: "control-" + name, owners: append(ownerRefs(live), c.ref)})
		stays = append(stays, control)
		if c.absent {
			goes = append(goes, alone)
		} else {
			stays = append(stays, alone)
		}
	}
	good := w.create(objectSpec{name: "good", owners: ownerRefs(owner)})
	w.waitForDeletion(goes...)
	w.expectKept(append(stays, good, owner, live)...)
	w.delete(owner, foreground)
	w.waitForDeletion(owner, good)
	w.expectKept(stays...)
	elsewhere.expectKept(foreign)
}

// G-37, 3.3: several references have one UID, of which one is correct.
func TestG37_3_3_OneUID_InSeveralReferences(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	refs := ownerRefs(owner, owner, owner)
	refs[1].Name, refs[2].Kind = "another", "Unheard"
	first := w.create(objectSpec{name: "first", owners: refs[1:2]}) // the wrong one first
	right := w.create(objectSpec{name: "right", owners: refs[:1]})
	held := w.create(objectSpec{name: "held", owners: refs[1:]})
	mixed := w.create(objectSpec{name: "mixed", owners: refs[:2]})
	w.waitForDeletion(first)
	w.waitForOwners(mixed, "owner")
	w.expectKept(owner, right, held, mixed)
	w.delete(owner, background)
	w.waitForDeletion(right, mixed)
	w.expectKept(held)
}

// Cycles of any length are collected when one of their objects is deleted, with any
// policy, and stay otherwise (3.20).
func TestG64_3_19_3_20_Cycles(t *testing.T) {
	w := newEnv(t)
	var still []*unstructured.Unstructured
	for _, n := range []int{1, 2, 3, 40} {
		still = append(still, w.createCycle(fmt.Sprintf("still-%d", n), n, blockingRefs)...)
		for _, policy := range []metav1.DeletionPropagation{background, foreground} {
			for how, refer := range map[string]func(...*unstructured.Unstructured) []metav1.OwnerReference{"blocking": blockingRefs, "loose": ownerRefs} {
				ring := w.createCycle(fmt.Sprintf("ring-%d-%c-%s", n, policy[0]+32, how), n, refer)
				w.waitForGraph(ring...)
				w.delete(ring[0], policy)
				defer w.waitForDeletion(ring...)
			}
		}
	}
	w.expectKept(still...)
}

// createCycle creates objects each of which is owned by the next.
func (w *env) createCycle(name string, n int, refer func(...*unstructured.Unstructured) []metav1.OwnerReference) []*unstructured.Unstructured {
	w.Helper()
	ring := make([]*unstructured.Unstructured, n)
	for i := range n {
		ring[i] = w.create(objectSpec{name: fmt.Sprintf("%s-%d", name, i)})
	}
	for i, o := range ring {
		w.patch(o, map[string]any{"ownerReferences": refer(ring[(i+1)%n])})
	}
	return ring
}

// Cycles that share an object, with a finalizer inside, and an existing owner outside:
// its dependents stay, and their dependents.
func TestG64_JoinedCycles_WithAnExistingOwner(t *testing.T) {
	w := newEnv(t)
	ring := w.createCycle("ring", 3, blockingRefs)
	other := w.createCycle("other", 3, blockingRefs)
	live := w.create(objectSpec{name: "live"})
	w.patch(ring[1], map[string]any{"ownerReferences": blockingRefs(ring[2], other[0])})
	w.patch(other[1], map[string]any{"ownerReferences": blockingRefs(other[2], live), "finalizers": []string{testFinalizer}})
	w.waitForGraph(append(ring, other...)...)
	w.delete(ring[0], foreground)
	w.waitForDeletion(ring[0], ring[2])
	w.waitForOwners(ring[1], other[0].GetName())
	w.expectKept(append(other, live, ring[1])...)
	w.delete(live, foreground)
	w.waitForOwners(other[1], other[2].GetName())
	w.waitForDeletion(live)
	w.expectKept(append(other, ring[1])...)
}
