package integration

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

func TestG47_G49_BackgroundDeletion_CollectsDependents(t *testing.T) {
	w := newEnv(t)
	gone, stays := w.create(objectSpec{name: "gone"}), w.create(objectSpec{name: "stays"})
	sole := w.create(objectSpec{name: "sole", owners: ownerRefs(gone)})
	shared := w.create(objectSpec{name: "shared", owners: ownerRefs(gone, stays)})
	free := w.create(objectSpec{name: "free"})
	below := w.create(objectSpec{name: "below", owners: ownerRefs(sole)})
	w.delete(gone, background)
	w.waitForDeletion(gone, sole, below)
	w.waitForOwners(shared, "stays")
	w.expectKept(shared, free, stays)
	w.waitForRemovalFromGraph(gone, sole)
}

func TestG53_CreatedWithAMissingOwner_IsCollected(t *testing.T) {
	w := newEnv(t)
	w.waitForDeletion(w.create(objectSpec{name: "dependent", owners: []metav1.OwnerReference{missingOwnerRef()}}))
}

func TestScenario36_G28_G33_G37_ReferencesIntoOtherNamespaces(t *testing.T) {
	w := newEnv(t)
	other := newEnv(t)
	parent := w.create(objectSpec{name: "parent"})
	var valid, invalid []*unstructured.Unstructured
	for i := range 10 {
		valid = append(valid, w.create(objectSpec{name: fmt.Sprintf("valid-%d", i), owners: ownerRefs(parent)}))
	}
	for i := range 25 {
		ref := ownerRefs(parent)[0]
		ref.Name = "bogus"
		invalid = append(invalid, w.create(objectSpec{name: fmt.Sprintf("bogus-%d", i), owners: []metav1.OwnerReference{ref}}))
	}
	w.waitForGraph(parent)
	far := other.create(objectSpec{name: "far", owners: ownerRefs(parent)})
	invalid = append(invalid, far)
	w.waitForDeletion(invalid...)
	w.expectKept(append(valid, parent)...)
	w.waitForGraph(parent)
	event := other.waitForWarning(far)
	if event.Type != "Warning" || event.Source.Component != "garbage-collector-controller" {
		t.Errorf("event is a %s from %s", event.Type, event.Source.Component)
	}
}

func TestG34_ClusterScopedObject_OfANamespacedOwner_IsKept(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	w.waitForGraph(owner)
	child := w.create(objectSpec{name: w.ns + "-child", kind: clusterRole, owners: ownerRefs(owner)})
	event := w.waitForWarning(child)
	if event.Namespace != metav1.NamespaceDefault {
		t.Errorf("event is in namespace %s", event.Namespace)
	}
	w.expectKept(child)
	w.delete(owner, background)
	w.waitForDeletion(owner)
	w.expectKept(child)
}

func TestG34_NamespacedObjects_OfAClusterScopedOwner(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: w.ns + "-owner", kind: clusterRole})
	child := w.create(objectSpec{name: "child", owners: ownerRefs(owner)})
	peer := w.create(objectSpec{name: w.ns + "-peer", kind: clusterRole, owners: ownerRefs(owner)})
	w.expectKept(child, peer)
	w.delete(owner, background)
	w.waitForDeletion(child, peer)
}

func TestG35_AnotherServedVersion_OfTheOwnersType(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner", kind: hpa})
	ref := ownerRefs(owner)[0]
	ref.APIVersion = "autoscaling/v1"
	child := w.create(objectSpec{name: "child", owners: []metav1.OwnerReference{ref}})
	w.expectKept(child)
	w.delete(owner, background)
	w.waitForDeletion(child)
}

func TestG36_UnknownType_KeepsItsDependents(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	unserved, unknown := ownerRefs(owner)[0], ownerRefs(owner)[0]
	unserved.APIVersion, unknown.Kind = "v9", "Invented"
	kept := w.create(objectSpec{name: "unserved", owners: []metav1.OwnerReference{unserved}})
	alsoKept := w.create(objectSpec{name: "unknown", owners: []metav1.OwnerReference{unknown}})
	good := w.create(objectSpec{name: "good", owners: ownerRefs(owner)})
	w.delete(owner, background)
	w.waitForDeletion(owner, good)
	w.expectKept(kept, alsoKept)
	for _, e := range w.collector.Records(kept.GetUID()) {
		if e.Reason != "OwnerUnreadable" {
			t.Errorf("decided: %v", e)
		}
	}
}

func TestG49_ExistingDeletionFinalizer_AppliesToItsDependents(t *testing.T) {
	w := newEnv(t)
	root := w.create(objectSpec{name: "root"})
	middle := w.create(objectSpec{name: "middle", owners: ownerRefs(root), finalizers: []string{"orphan"}})
	leaf := w.create(objectSpec{name: "leaf", owners: ownerRefs(middle)})
	w.waitForGraph(root, middle, leaf)
	w.delete(root, background)
	w.waitForDeletion(root, middle)
	w.waitForOwners(leaf)
	w.expectKept(leaf)
}

func TestG65_OwnerWithAFinalizer_KeepsItsDependents(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner", finalizers: []string{"test.gleaner.dev/hold"}})
	dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner)})
	w.delete(owner, background)
	w.expectKept(dependent)
	w.patch(owner, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	w.waitForDeletion(owner, dependent)
}

func TestG66_G67_Orphan_RemovesTheReferences(t *testing.T) {
	w := newEnv(t)
	custom := w.createType(true)
	owner, other := w.create(objectSpec{name: "owner"}), w.create(objectSpec{name: "other"})
	var dependents []*unstructured.Unstructured
	for i := range 20 {
		th := objectSpec{name: fmt.Sprintf("dependent-%d", i), owners: ownerRefs(owner, other)}
		if i%2 == 0 {
			th.kind = custom
		}
		dependents = append(dependents, w.create(th))
	}
	ending := w.create(objectSpec{name: "ending", owners: ownerRefs(owner), finalizers: []string{"test.gleaner.dev/hold"}})
	w.delete(ending, background)
	w.waitForGraph(append(dependents, ending)...)
	w.delete(owner, orphan)
	w.waitForDeletion(owner)
	for _, d := range dependents {
		w.waitForOwners(d, "other")
	}
	w.waitForOwners(ending)
	w.expectKept(dependents...)
}

func TestG40_Restart_CatchesUpOnMissedEvents(t *testing.T) {
	w := newEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	gone := w.create(objectSpec{name: "gone"})
	w.delete(gone, background)
	w.waitForDeletion(gone)
	dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(gone)})
	both := w.create(objectSpec{name: "both", owners: ownerRefs(gone, owner)})
	w.waitForDeletion(dependent)
	w.waitForOwners(both, "owner")
	w.expectKept(both)
}

func TestScenario39_ManyCascades_InParallel(t *testing.T) {
	w := newEnv(t)
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
		g := group{owner: w.create(objectSpec{name: fmt.Sprintf("owner-%d", i)})}
		for j := range width {
			g.dependents = append(g.dependents, w.create(objectSpec{name: fmt.Sprintf("d-%d-%d", i, j), owners: blockingRefs(g.owner)}))
		}
		w.waitForGraph(g.dependents...)
		made = append(made, g)
	}
	for i, g := range made {
		if err := w.client(nil, "").Delete(w.Context(), g.owner.GetName(), policies[i%len(policies)]); err != nil {
			t.Fatal(err)
		}
	}
	for i, g := range made {
		w.waitForDeletion(g.owner)
		if i%len(policies) == 2 {
			w.expectKept(g.dependents...)
			continue
		}
		w.waitForDeletion(g.dependents...)
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
