package faults

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Each wrong reference is tried alone, beside a good one, and to a UID that good
// references of others name, too: it must not poison them (3.1).
func TestG34_G36_G37_3_1_WrongReferencesHarmNobodyElse(t *testing.T) {
	w := newWorld(t)
	elsewhere := worldOn(t, w.stage)
	owner, live := w.make(thing{name: "owner"}), w.make(thing{name: "live"})
	foreign := elsewhere.make(thing{name: "foreign"})
	v1 := configMap.resource.GroupVersion()
	w.witness.knows(&kind{resource: v1.WithResource("secrets"), kind: "Secret", namespaced: true},
		&kind{resource: v1.WithResource("namespaces"), kind: "Namespace"})
	change := func(change func(*metav1.OwnerReference)) metav1.OwnerReference {
		ref := owns(owner)[0]
		change(&ref)
		return ref
	}
	var goes, stays []*unstructured.Unstructured
	for name, c := range map[string]struct {
		ref    metav1.OwnerReference
		absent bool // it proves to be absent
	}{
		"kind":           {change(func(r *metav1.OwnerReference) { r.Kind = "Unheard" }), false},
		"group":          {change(func(r *metav1.OwnerReference) { r.APIVersion = "unheard.gleaner.dev/v1" }), false},
		"version":        {change(func(r *metav1.OwnerReference) { r.APIVersion = "v2" }), false},
		"name":           {change(func(r *metav1.OwnerReference) { r.Name = "nobody" }), true},
		"other-kind":     {change(func(r *metav1.OwnerReference) { r.Kind = "Secret" }), true},
		"no-path":        {change(func(r *metav1.OwnerReference) { r.Name = "../secrets/x" }), false},
		"uid":            {wrongUID(owner)[0], true},
		"odd-uid":        {change(func(r *metav1.OwnerReference) { r.UID = "not a uuid" }), true},
		"elsewhere":      {owns(foreign)[0], true},
		"cluster-scoped": {metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: w.ns, UID: "no-such-namespace"}, true},
	} {
		alone := w.make(thing{name: "alone-" + name, owners: []metav1.OwnerReference{c.ref}})
		beside := w.make(thing{name: "beside-" + name, owners: append(owns(live), c.ref)})
		stays = append(stays, beside)
		if c.absent {
			goes = append(goes, alone)
		} else {
			stays = append(stays, alone)
		}
	}
	good := w.make(thing{name: "good", owners: owns(owner)})
	w.goes(goes...)
	w.stays(append(stays, good, owner, live)...)
	w.delete(owner, foreground)
	w.goes(owner, good)
	w.stays(stays...)
	elsewhere.stays(foreign)
}

// G-37, 3.3: one UID is claimed by several coordinates, of which one is right.
func TestG37_3_3_OneUIDByManyCoordinates(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	refs := owns(owner, owner, owner)
	refs[1].Name, refs[2].Kind = "another", "Unheard"
	first := w.make(thing{name: "first", owners: refs[1:2]}) // the wrong one comes first
	right := w.make(thing{name: "right", owners: refs[:1]})
	held := w.make(thing{name: "held", owners: refs[1:]})
	mixed := w.make(thing{name: "mixed", owners: refs[:2]})
	w.goes(first)
	w.ownedBy(mixed, "owner")
	w.stays(owner, right, held, mixed)
	w.delete(owner, background)
	w.goes(right, mixed)
	w.stays(held)
}

// Cycles of any length are collected when one of them is deleted, in whatever
// way, and stay when nothing else happens (3.20).
func TestG64_3_19_3_20_Cycles(t *testing.T) {
	w := newWorld(t)
	var still []*unstructured.Unstructured
	for _, n := range []int{1, 2, 3, 40} {
		still = append(still, w.ring(fmt.Sprintf("still-%d", n), n, blocks)...)
		for _, policy := range []metav1.DeletionPropagation{background, foreground} {
			for how, refer := range map[string]func(...*unstructured.Unstructured) []metav1.OwnerReference{"blocking": blocks, "loose": owns} {
				ring := w.ring(fmt.Sprintf("ring-%d-%c-%s", n, policy[0]+32, how), n, refer)
				w.seen(ring...)
				w.delete(ring[0], policy)
				defer w.goes(ring...)
			}
		}
	}
	w.stays(still...)
}

// ring makes objects each of which is owned by the next.
func (w *world) ring(name string, n int, refer func(...*unstructured.Unstructured) []metav1.OwnerReference) []*unstructured.Unstructured {
	w.Helper()
	ring := make([]*unstructured.Unstructured, n)
	for i := range n {
		ring[i] = w.make(thing{name: fmt.Sprintf("%s-%d", name, i)})
	}
	for i, o := range ring {
		w.patch(o, map[string]any{"ownerReferences": refer(ring[(i+1)%n])})
	}
	return ring
}

// Rings that share an object, with a finalizer inside, and an owner outside
// that stands: what it owns stays, and with it what that owns.
func TestG64_AFigureOfEightWithAnOwnerThatStands(t *testing.T) {
	w := newWorld(t)
	ring := w.ring("ring", 3, blocks)
	other := w.ring("other", 3, blocks)
	live := w.make(thing{name: "live"})
	w.patch(ring[1], map[string]any{"ownerReferences": blocks(ring[2], other[0])})
	w.patch(other[1], map[string]any{"ownerReferences": blocks(other[2], live), "finalizers": []string{hold}})
	w.seen(append(ring, other...)...)
	w.delete(ring[0], foreground)
	w.goes(ring[0], ring[2])
	w.ownedBy(ring[1], other[0].GetName())
	w.stays(append(other, live, ring[1])...)
	w.delete(live, foreground)
	w.ownedBy(other[1], other[2].GetName())
	w.goes(live)
	w.stays(append(other, ring[1])...)
}
