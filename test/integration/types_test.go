package integration

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

func TestScenario45_46_CustomAndCoreResources_OwnEachOther(t *testing.T) {
	w := newEnv(t)
	custom := w.createType(true)
	for name, policy := range map[string]metav1.DeletionPropagation{"background": background, "foreground": foreground} {
		t.Run(name, func(t *testing.T) {
			w := newEnvOn(t, w.config, w.collector)
			root := w.create(objectSpec{name: "root", kind: custom})
			core := w.create(objectSpec{name: "core", owners: blockingRefs(root)})
			below := w.create(objectSpec{name: "below", kind: custom, owners: blockingRefs(core)})
			w.waitForGraph(root, core, below)
			w.delete(root, policy)
			w.waitForDeletion(root, core, below)
		})
	}
}

func TestScenario59_CustomResources_AreOrphaned(t *testing.T) {
	w := newEnv(t)
	custom := w.createType(true)
	owner := w.create(objectSpec{name: "owner", kind: custom})
	dependent := w.create(objectSpec{name: "dependent", kind: custom, owners: ownerRefs(owner)})
	w.waitForGraph(dependent)
	w.delete(owner, orphan)
	w.waitForDeletion(owner)
	w.waitForOwners(dependent)
	w.expectKept(dependent)
}

func TestScenario58_ClusterScopedCustomResources_Cascade(t *testing.T) {
	w := newEnv(t)
	custom := w.createType(false)
	owner := w.create(objectSpec{name: "owner", kind: custom})
	dependent := w.create(objectSpec{name: "dependent", kind: custom, owners: ownerRefs(owner)})
	namespaced := w.create(objectSpec{name: "namespaced", owners: ownerRefs(owner)})
	w.expectKept(dependent, namespaced)
	w.delete(owner, background)
	w.waitForDeletion(dependent, namespaced)
}

func TestScenario47_Type_IsRemovedAndRecreated(t *testing.T) {
	w := newEnv(t)
	for range 2 {
		custom := w.createType(true)
		owner := w.create(objectSpec{name: "owner"})
		dependent := w.create(objectSpec{name: "dependent", kind: custom, owners: ownerRefs(owner)})
		w.waitForGraph(dependent)
		err := w.types.ApiextensionsV1().CustomResourceDefinitions().Delete(w.Context(), custom.resource.GroupResource().String(), metav1.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.waitForRemovalFromGraph(dependent)
		w.delete(owner, background)
		w.waitForDeletion(owner)
	}
}

// 3.6: the type of an owner is removed before its deletion is seen: what
// happened to it is unknown, and the dependent is kept.
func TestG36_RemovedType_KeepsItsDependents(t *testing.T) {
	w := newEnv(t)
	custom := w.createType(true)
	owner := w.create(objectSpec{name: "owner", kind: custom, finalizers: []string{testFinalizer}})
	dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner)})
	w.waitForGraph(owner, dependent)
	crds := w.types.ApiextensionsV1().CustomResourceDefinitions()
	name := custom.resource.GroupResource().String()
	if err := crds.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expectKept(dependent)
	w.patch(owner, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	devtest.Eventually(t, timeout, func() error {
		if _, err := crds.Get(w.Context(), name, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("%s still exists", name)
		}
		return nil
	})
	w.waitUntilIdle()
	// Whether the collector saw the deletion of the owner or that of the type first is a
	// race in which both results are right; what counts is that the queue becomes empty.
	if live := w.get(dependent); live != nil {
		w.expectKept(dependent)
	}
}

// 3.14: objects of a new type are collected about a second after it was defined, without
// waiting for the next discovery: a second collector, which writes nothing, has none.
func Test3_14_NewType_IsCollectedImmediately(t *testing.T) {
	w := newEnv(t)
	o := inprocess.Options(w.config)
	o.DiscoveryInterval, o.DryRun = 24*time.Hour, true
	second := newEnvOn(t, w.config, inprocess.RunForTest(t, o))
	second.waitForGraph(second.create(objectSpec{name: "before"})) // the first discovery is over
	custom := second.createType(true)
	owner := second.create(objectSpec{name: "owner", kind: custom})
	dependent := second.create(objectSpec{name: "dependent", kind: custom, owners: ownerRefs(owner)})
	second.waitForGraph(owner, dependent)
	second.delete(owner, background)
	second.waitForDeletion(dependent)
}

func TestScenario49_ClusterScopedOwner_OfALateType(t *testing.T) {
	w := newEnv(t)
	custom := w.createType(false)
	owner := w.create(objectSpec{name: "owner", kind: custom})
	valid := w.create(objectSpec{name: "valid", owners: ownerRefs(owner)})
	missing := ownerRefs(owner)
	missing[0].Name, missing[0].UID = "missing", "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0001"
	unknown := ownerRefs(owner)
	unknown[0].Kind = "Unknown"
	lost := w.create(objectSpec{name: "lost", owners: missing})
	kept := w.create(objectSpec{name: "kept", owners: unknown})
	w.waitForDeletion(lost)
	w.expectKept(valid, kept)
}
