package restore

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// leave returns why an object is not restored, because something creates it again or because it
// should not run again.
func (b *builder) leave(o *unstructured.Unstructured, key Key) (message string, ok bool) {
	switch {
	case createdInNamespaces[Key{GroupKind: key.GroupKind, Name: key.Name}]:
		return "is left to Kubernetes, which creates it in each namespace", true
	case key.GroupKind == namespaceKind && b.Namespace != "":
		return "is left alone: its objects are restored to namespace " + b.Namespace, true
	case key.GroupKind == podKind && o.GetAnnotations()["kubernetes.io/config.mirror"] != "":
		return "is left to the kubelet, which creates it from a file", true
	case b.All:
		return "", false
	}
	if owner, created := b.recreatedBy(o); created {
		return fmt.Sprintf("is left to %s %s, which creates it: use --all to restore it as it was", owner.Kind, owner.Name), true
	}
	if b.isEndpointsOfService(key) {
		return "is left to its Service, for which Kubernetes creates it: use --all to restore it as it was", true
	}
	if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); key.GroupKind == podKind && (phase == "Succeeded" || phase == "Failed") {
		return "had finished, and would run again: use --all to restore it", true
	}
	return "", false
}

// createdInNamespaces are the objects, without a namespace, that Kubernetes creates in each.
var createdInNamespaces = map[Key]bool{
	{GroupKind: configMapKind, Name: "kube-root-ca.crt"}: true,
	{GroupKind: serviceAccountKind, Name: "default"}:     true,
}

// isEndpointsOfService reports whether a key is that of the Endpoints of a Service that is restored
// or exists.
func (b *builder) isEndpointsOfService(key Key) bool {
	if key.GroupKind != (schema.GroupKind{Kind: "Endpoints"}) {
		return false
	}
	for _, o := range b.archived {
		if at := b.target(o); at == (Key{serviceKind, key.Namespace, key.Name}) {
			selector, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
			return len(selector) != 0
		}
	}
	return false
}

// createdMeanwhile reports whether what is at the place of an object was created by the object's
// controller, which was restored before.
func (b *builder) createdMeanwhile(o *unstructured.Unstructured, live Live) bool {
	former := metav1.GetControllerOf(o)
	if former == nil || live.Presence != Present || isTerminating(live.Object) {
		return false
	}
	now := metav1.GetControllerOf(live.Object)
	return now != nil && b.current[former.UID] != "" && b.current[former.UID] == now.UID
}

// recreatedBy returns the restored controller that creates an object itself.
func (b *builder) recreatedBy(o *unstructured.Unstructured) (metav1.OwnerReference, bool) {
	ref := metav1.GetControllerOf(o)
	if ref == nil {
		return metav1.OwnerReference{}, false
	}
	_, covered := b.restored[ref.UID]
	if _, left := b.left[ref.UID]; !covered && !left {
		return *ref, false
	}
	return *ref, createdByController[creationOf(*ref, o)]
}

// A creation is a kind of controllers with a kind of objects that they create.
type creation struct {
	schema.GroupKind
	created schema.GroupKind
}

func creationOf(ref metav1.OwnerReference, o *unstructured.Unstructured) creation {
	return creation{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), KeyOf(o).GroupKind}
}

func apps(kind string) schema.GroupKind { return schema.GroupKind{Group: "apps", Kind: kind} }

var createdByController = map[creation]bool{
	{apps("Deployment"), apps("ReplicaSet")}:                                          true,
	{apps("ReplicaSet"), podKind}:                                                     true,
	{apps("StatefulSet"), podKind}:                                                    true,
	{apps("StatefulSet"), apps("ControllerRevision")}:                                 true,
	{apps("DaemonSet"), podKind}:                                                      true,
	{apps("DaemonSet"), apps("ControllerRevision")}:                                   true,
	{schema.GroupKind{Kind: "ReplicationController"}, podKind}:                        true,
	{schema.GroupKind{Group: "batch", Kind: "CronJob"}, jobKind}:                      true,
	{jobKind, podKind}:                                                                true,
	{podKind, claimKind}:                                                              true, // of an ephemeral volume
	{serviceKind, schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}}: true,
}

// adopts reports whether an owner sets the reference of an object itself. A StatefulSet does so
// with its claims; those are restored first, since it would create missing ones without
// their volumes.
func adopts(ref metav1.OwnerReference, o *unstructured.Unstructured) bool {
	owner := creationOf(ref, o)
	return owner == creation{apps("StatefulSet"), claimKind} || owner == creation{podKind, claimKind} && !isController(ref)
}

func isController(ref metav1.OwnerReference) bool { return ref.Controller != nil && *ref.Controller }
