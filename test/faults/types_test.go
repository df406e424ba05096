package faults

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// 3.6 and 3.9: the same names exist again with new UIDs. State of the
// former objects must not be used for the new ones, nor the reverse.
func TestScenario47_3_6_Type_IsDeletedAndRecreated(t *testing.T) {
	w := newEnv(t)
	resource := newType()
	k := w.createType(resource)
	for round := range 3 {
		anchor := w.create(objectSpec{name: fmt.Sprintf("anchor-%d", round)})
		owner := w.create(objectSpec{name: "owner", kind: k, owners: ownerRefs(anchor)})
		former := w.create(objectSpec{name: fmt.Sprintf("former-%d", round), owners: ownerRefs(owner)})
		w.waitForGraph(owner, former)
		w.removeType(k)
		k = w.createType(resource)
		again := w.create(objectSpec{name: "owner", kind: k})
		kept := w.create(objectSpec{name: fmt.Sprintf("kept-%d", round), owners: ownerRefs(again)})
		both := w.create(objectSpec{name: fmt.Sprintf("both-%d", round), owners: append(ownerRefs(again), ownerRefs(owner)...)})
		w.waitForDeletion(former) // its owner is gone; another has its name
		w.waitForOwners(both, "owner")
		w.expectKept(again, kept, both)
		w.delete(again, background)
		w.waitForDeletion(kept, both)
	}
}

// G-36: in whatever order the events arrive, dependents of
// an owner whose type is gone are kept: it is unknown what happened to the owner.
func TestG36_RemovedType_KeepsDependentsUntilItReturns(t *testing.T) {
	w := newEnv(t)
	resource := newType()
	k := w.createType(resource)
	owner := w.create(objectSpec{name: "owner", kind: k})
	w.waitForGraph(owner)
	w.removeType(k)
	w.waitForUnserved(k)
	dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner)})
	w.waitForKept(dependent, "OwnerUnreadable")
	w.expectKept(dependent)
	w.createType(resource)
	w.waitForDeletion(dependent)
}

// waitForUnserved waits until a type is missing in discovery.
func (w *env) waitForUnserved(k *kind) {
	w.Helper()
	eventually(w, func() error {
		if _, served := w.collector.ResourceOf(k.gvk()); served {
			return errors.New("collector regards the type as served")
		}
		return nil
	})
}

// An API server that has just started returns 404 for types that it does not
// serve yet, and they are missing in its discovery. This proves nothing.
func TestG36_TypeNotServedYet_KeepsItsDependents(t *testing.T) {
	notFound := respondStatus(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource"})
	w := newEnv(t)
	k := w.createType(newType())
	owner := w.create(objectSpec{name: "owner", kind: k})
	witness := w.create(objectSpec{name: "earlier", owners: ownerRefs(owner)})
	w.waitForGraph(owner, witness)
	fault := w.proxy.fail(t, -1, forGroup(k.resource.Group), notFound)
	w.proxy.CutWatches(k.resource.Resource)
	late := w.create(objectSpec{name: "late", owners: ownerRefs(owner)})
	lost := w.create(objectSpec{name: "lost", owners: refsWithUnknownUID(owner)})
	fault.waitForCount(t, 2)
	w.waitForKept(lost, "OwnerUnreadable")
	w.expectKept(witness, late, lost)
	fault.Lift()
	w.waitForDeletion(lost)
	w.expectKept(witness, late)
}

// 3.7: only objects that need the type wait: an owner of it that has to be read, and owners
// that orphan, since a dependent could be of that type.
func TestScenario48_3_7_BrokenConversion_BlocksOnlyItsType(t *testing.T) {
	w := newEnv(t)
	k := w.createType(newType())
	owner := w.create(objectSpec{name: "owner", kind: k})
	seen := w.create(objectSpec{name: "seen", owners: ownerRefs(owner)})
	custom := w.create(objectSpec{name: "custom", kind: k, owners: blockingRefs(w.create(objectSpec{name: "custom-owner"}))})
	w.waitForGraph(owner, seen, custom)
	w.breakConversion(k)
	second := *k
	second.resource.Version = "v2"
	eventually(t, func() error {
		_, err := w.auditor.client(&second).List(t.Context(), metav1.ListOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			return fmt.Errorf("the type is not broken yet: %w", err)
		}
		return nil
	})
	eventually(t, func() error {
		if w.collector.Show().Synced() {
			return errors.New("all types are synced")
		}
		return nil
	})
	byOther := ownerRefs(owner)
	byOther[0].APIVersion = second.resource.GroupVersion().String()
	late := w.create(objectSpec{name: "late", owners: byOther})
	f := w.createCascade(2) // with all policies
	f.deleteOwners()
	w.waitForDeletion(f.deleted...)
	w.waitForDeletion(f.owners[0], f.owners[1])
	orphaning := f.owners[2]
	w.waitForKept(orphaning, "DependentsUnreadable")
	for _, o := range f.orphaned {
		w.waitForOwners(o)
	}
	w.expectKept(append([]*unstructured.Unstructured{seen, late, owner, custom}, f.kept...)...)
	if w.get(orphaning) == nil {
		t.Error("an owner with the orphan finalizer was deleted while a type could not be listed")
	}
	w.repairConversion(k)
	w.waitForDeletion(orphaning)
	w.expectKept(seen, late)
	w.auditor.addKinds(&second) // can be read from now on
	w.delete(owner, background)
	w.waitForDeletion(seen, late)
}
