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

// 3.6 and 3.9: the same names come back with new UIDs. What belonged to the
// former objects must not be taken for the new ones', nor the other way round.
func TestScenario47_3_6_ATypeIsDeletedAndDefinedAgainUnderTheCollector(t *testing.T) {
	w := newWorld(t)
	resource := newType()
	k := w.define(resource)
	for round := range 3 {
		anchor := w.make(thing{name: fmt.Sprintf("anchor-%d", round)})
		owner := w.make(thing{name: "owner", kind: k, owners: owns(anchor)})
		former := w.make(thing{name: fmt.Sprintf("former-%d", round), owners: owns(owner)})
		w.seen(owner, former)
		w.undefine(k)
		k = w.define(resource)
		again := w.make(thing{name: "owner", kind: k})
		kept := w.make(thing{name: fmt.Sprintf("kept-%d", round), owners: owns(again)})
		both := w.make(thing{name: fmt.Sprintf("both-%d", round), owners: append(owns(again), owns(owner)...)})
		w.goes(former) // its owner is gone for good, and another has its name
		w.ownedBy(both, "owner")
		w.stays(again, kept, both)
		w.delete(again, background)
		w.goes(kept, both)
	}
}

// G-36: whatever the order in which the API server tells of it, dependents of
// an owner whose type is gone are kept: nobody can know what became of it.
func TestG36_DependentsOfATypeThatIsGoneAreKeptUntilItIsBack(t *testing.T) {
	w := newWorld(t)
	resource := newType()
	k := w.define(resource)
	owner := w.make(thing{name: "owner", kind: k})
	w.seen(owner)
	w.undefine(k)
	w.eventuallyUnserved(k)
	dependent := w.make(thing{name: "dependent", owners: owns(owner)})
	w.holds(dependent, "OwnerUnreadable")
	w.stays(dependent)
	w.define(resource)
	w.goes(dependent)
}

// eventuallyUnserved waits until discovery does not know a type any more.
func (w *world) eventuallyUnserved(k *kind) {
	w.Helper()
	eventually(w, func() error {
		if _, served := w.collector.ResourceOf(k.gvk()); served {
			return errors.New("the collector takes it to be served")
		}
		return nil
	})
}

// An API server that has just started answers 404 for types that it does not
// serve yet, and its discovery lacks them. Nothing follows from either.
func TestG36_ATypeThatIsNotServedYetHoldsItsDependents(t *testing.T) {
	notFound := says(metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource"})
	w := newWorld(t)
	k := w.define(newType())
	owner := w.make(thing{name: "owner", kind: k})
	witness := w.make(thing{name: "earlier", owners: owns(owner)})
	w.seen(owner, witness)
	fault := w.proxy.fails(t, -1, ofGroup(k.resource.Group), notFound)
	w.proxy.CutWatches(k.resource.Resource)
	late := w.make(thing{name: "late", owners: owns(owner)})
	lost := w.make(thing{name: "lost", owners: wrongUID(owner)})
	fault.happened(t, 2)
	w.holds(lost, "OwnerUnreadable")
	w.stays(witness, late, lost)
	fault.Lift()
	w.goes(lost)
	w.stays(witness, late)
}

// 3.7: only what needs the type is held: an owner of it that has to be read, and what
// is orphaned, since a dependent could be of that type.
func TestScenario48_3_7_ABrokenConversionHoldsOnlyWhatNeedsIt(t *testing.T) {
	w := newWorld(t)
	k := w.define(newType())
	owner := w.make(thing{name: "owner", kind: k})
	seen := w.make(thing{name: "seen", owners: owns(owner)})
	custom := w.make(thing{name: "custom", kind: k, owners: blocks(w.make(thing{name: "custom-owner"}))})
	w.seen(owner, seen, custom)
	w.breakConversion(k)
	second := *k
	second.resource.Version = "v2"
	eventually(t, func() error {
		_, err := w.witness.client(&second).List(t.Context(), metav1.ListOptions{})
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
	byOther := owns(owner)
	byOther[0].APIVersion = second.resource.GroupVersion().String()
	late := w.make(thing{name: "late", owners: byOther})
	f := w.family(2) // in all three ways
	f.fall()
	w.goes(f.goes...)
	w.goes(f.owners[0], f.owners[1])
	orphaning := f.owners[2]
	w.holds(orphaning, "DependentsUnreadable")
	for _, o := range f.orphan {
		w.ownedBy(o)
	}
	w.stays(append([]*unstructured.Unstructured{seen, late, owner, custom}, f.stays...)...)
	if w.get(orphaning) == nil {
		t.Error("an orphaning owner went while a type could not be listed")
	}
	w.mendConversion(k)
	w.goes(orphaning)
	w.stays(seen, late)
	w.witness.knows(&second) // which can be read from now on
	w.delete(owner, background)
	w.goes(seen, late)
}
