package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

func TestG47_G49_BackgroundDeletionCollectsWhoHasNoOwnerLeft(t *testing.T) {
	w := newWorld(t)
	gone, stays := w.make(thing{name: "gone"}), w.make(thing{name: "stays"})
	sole := w.make(thing{name: "sole", owners: owns(gone)})
	shared := w.make(thing{name: "shared", owners: owns(gone, stays)})
	free := w.make(thing{name: "free"})
	below := w.make(thing{name: "below", owners: owns(sole)})
	w.delete(gone, background)
	w.goes(gone, sole, below)
	w.ownedBy(shared, "stays")
	w.stays(shared, free, stays)
	w.forgotten(gone, sole)
}

func TestG53_CreatedWithAnOwnerThatNeverExisted(t *testing.T) {
	w := newWorld(t)
	w.goes(w.make(thing{name: "dependent", owners: []metav1.OwnerReference{lost()}}))
}

func TestScenario36_G28_G33_G37_ReferencesIntoOtherNamespaces(t *testing.T) {
	w := newWorld(t)
	other := newWorld(t)
	parent := w.make(thing{name: "parent"})
	var valid, invalid []*unstructured.Unstructured
	for i := range 10 {
		valid = append(valid, w.make(thing{name: fmt.Sprintf("valid-%d", i), owners: owns(parent)}))
	}
	for i := range 25 {
		ref := owns(parent)[0]
		ref.Name = "bogus"
		invalid = append(invalid, w.make(thing{name: fmt.Sprintf("bogus-%d", i), owners: []metav1.OwnerReference{ref}}))
	}
	w.seen(parent)
	far := other.make(thing{name: "far", owners: owns(parent)})
	invalid = append(invalid, far)
	w.goes(invalid...)
	w.stays(append(valid, parent)...)
	w.seen(parent)
	event := other.warning(far)
	if event.Type != "Warning" || event.Source.Component != "garbage-collector-controller" {
		t.Errorf("event is a %s from %s", event.Type, event.Source.Component)
	}
}

func TestG34_AClusterScopedObjectOfANamespacedOwnerIsKept(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	w.seen(owner)
	child := w.make(thing{name: w.ns + "-child", kind: clusterRole, owners: owns(owner)})
	event := w.warning(child)
	if event.Namespace != metav1.NamespaceDefault {
		t.Errorf("event is in namespace %s", event.Namespace)
	}
	w.stays(child)
	w.delete(owner, background)
	w.goes(owner)
	w.stays(child)
}

func TestG34_NamespacedObjectsOfAClusterScopedOwner(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: w.ns + "-owner", kind: clusterRole})
	child := w.make(thing{name: "child", owners: owns(owner)})
	peer := w.make(thing{name: w.ns + "-peer", kind: clusterRole, owners: owns(owner)})
	w.stays(child, peer)
	w.delete(owner, background)
	w.goes(child, peer)
}

func TestG35_AnotherServedVersionOfTheOwnersType(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner", kind: hpa})
	ref := owns(owner)[0]
	ref.APIVersion = "autoscaling/v1"
	child := w.make(thing{name: "child", owners: []metav1.OwnerReference{ref}})
	w.stays(child)
	w.delete(owner, background)
	w.goes(child)
}

func TestG36_AnUnknownTypeKeepsItsDependents(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	unserved, unknown := owns(owner)[0], owns(owner)[0]
	unserved.APIVersion, unknown.Kind = "v9", "Invented"
	kept := w.make(thing{name: "unserved", owners: []metav1.OwnerReference{unserved}})
	alsoKept := w.make(thing{name: "unknown", owners: []metav1.OwnerReference{unknown}})
	good := w.make(thing{name: "good", owners: owns(owner)})
	w.delete(owner, background)
	w.goes(owner, good)
	w.stays(kept, alsoKept)
	for _, e := range w.collector.Records(kept.GetUID()) {
		if e.Reason != "OwnerUnreadable" {
			t.Errorf("decided: %v", e)
		}
	}
}

func TestG49_APrePlacedFinalizerGovernsItsOwnSubtree(t *testing.T) {
	w := newWorld(t)
	root := w.make(thing{name: "root"})
	middle := w.make(thing{name: "middle", owners: owns(root), finalizers: []string{"orphan"}})
	leaf := w.make(thing{name: "leaf", owners: owns(middle)})
	w.seen(root, middle, leaf)
	w.delete(root, background)
	w.goes(root, middle)
	w.ownedBy(leaf)
	w.stays(leaf)
}

func TestG65_AHeldOwnersDependentsAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner", finalizers: []string{"test.gleaner.dev/hold"}})
	dependent := w.make(thing{name: "dependent", owners: owns(owner)})
	w.delete(owner, background)
	w.stays(dependent)
	w.patch(owner, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.goes(owner, dependent)
}

func TestG66_G67_OrphanedDependentsStayWithoutTheirReferences(t *testing.T) {
	w := newWorld(t)
	custom := w.define(true)
	owner, other := w.make(thing{name: "owner"}), w.make(thing{name: "other"})
	var dependents []*unstructured.Unstructured
	for i := range 20 {
		th := thing{name: fmt.Sprintf("dependent-%d", i), owners: owns(owner, other)}
		if i%2 == 0 {
			th.kind = custom
		}
		dependents = append(dependents, w.make(th))
	}
	ending := w.make(thing{name: "ending", owners: owns(owner), finalizers: []string{"test.gleaner.dev/hold"}})
	w.delete(ending, background)
	w.seen(append(dependents, ending)...)
	w.delete(owner, orphan)
	w.goes(owner)
	for _, d := range dependents {
		w.ownedBy(d, "other")
	}
	w.ownedBy(ending)
	w.stays(dependents...)
}

func TestG40_TheCollectorCatchesUpWithWhatHappenedWhileItWasAway(t *testing.T) {
	w := newWorld(t)
	owner := w.make(thing{name: "owner"})
	gone := w.make(thing{name: "gone"})
	w.delete(gone, background)
	w.goes(gone)
	dependent := w.make(thing{name: "dependent", owners: owns(gone)})
	both := w.make(thing{name: "both", owners: owns(gone, owner)})
	w.goes(dependent)
	w.ownedBy(both, "owner")
	w.stays(both)
}

func TestScenario39_ManyCascadesAtOnce(t *testing.T) {
	w := newWorld(t)
	const groups, width = 10, 15
	policies := []metav1.DeleteOptions{
		{}, {PropagationPolicy: ptr.To(background)}, {PropagationPolicy: ptr.To(orphan)}, {PropagationPolicy: ptr.To(foreground)},
	}
	type group struct {
		owner      *unstructured.Unstructured
		dependents []*unstructured.Unstructured
	}
	var made []group
	for i := range groups {
		g := group{owner: w.make(thing{name: fmt.Sprintf("owner-%d", i)})}
		for j := range width {
			g.dependents = append(g.dependents, w.make(thing{name: fmt.Sprintf("d-%d-%d", i, j), owners: blocks(g.owner)}))
		}
		w.seen(g.dependents...)
		made = append(made, g)
	}
	for i, g := range made {
		if err := w.client(nil, "").Delete(w.Context(), g.owner.GetName(), policies[i%len(policies)]); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range made {
		w.goes(g.owner)
		if i%len(policies) == 2 {
			w.stays(g.dependents...)
			continue
		}
		w.goes(g.dependents...)
	}
}

var hpa = &kind{
	resource:   configMaps.GroupResource().WithVersion("v2"),
	kind:       "HorizontalPodAutoscaler",
	namespaced: true,
	spec: map[string]any{
		"maxReplicas":    int64(1),
		"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "none"},
	},
}

func init() {
	hpa.resource.Group, hpa.resource.Resource = "autoscaling", "horizontalpodautoscalers"
}
