package preview

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Finalizers that Kubernetes itself removes.
const (
	instanceCleanupFinalizer = "customresourcecleanup.apiextensions.k8s.io"
	claimProtectionFinalizer = "kubernetes.io/pvc-protection"
	jobTrackingFinalizer     = "batch.kubernetes.io/job-tracking"
)

// runControllers simulates what the API server and kube-controller-manager do with objects
// that are being deleted. It reports whether anything changed.
func (p *simulation) runControllers() (did bool) {
	for _, o := range p.terminating() {
		switch {
		case o.contents:
			did = p.emptyNamespace(o) || did
		case slices.Contains(o.Finalizers, instanceCleanupFinalizer) && o.resource.GroupKind() == definitions:
			did = p.emptyDefinition(o) || did
		case slices.Contains(o.Finalizers, claimProtectionFinalizer) && o.resource.GroupKind() == claims && len(p.cluster.list(podResource, o.Namespace)) == 0:
			did = p.removeFinalizer(o, claimProtectionFinalizer) || did
		case slices.Contains(o.Finalizers, jobTrackingFinalizer) && o.resource.GroupKind() == pods:
			did = p.removeFinalizer(o, jobTrackingFinalizer) || did
		}
	}
	return did
}

// affected returns the objects of the preview: those that the deletion may affect, and
// those that were changed.
func (p *simulation) affected() map[graph.ID]struct{} {
	all := maps.Clone(p.touched)
	for _, id := range p.tree.order {
		all[id] = struct{}{}
	}
	return all
}

var podResource = schema.GroupResource{Resource: "pods"}

// terminating returns the objects of the preview that are being deleted, sorted.
func (p *simulation) terminating() []*object {
	var found []*object
	for id := range p.affected() {
		if o, ok := p.cluster.objects[id]; ok && o.DeletionTimestamp != nil {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, compare)
	return found
}

// emptyNamespace deletes the objects in a namespace: first the pods and, when they are
// gone, the rest. Then the namespace can be deleted.
func (p *simulation) emptyNamespace(namespace *object) (did bool) {
	inside := p.contents(namespace.Name)
	if first := slices.DeleteFunc(slices.Clone(inside), func(o *object) bool { return o.resource.GroupKind() != pods }); len(first) != 0 {
		inside = first
	}
	for _, o := range inside {
		did = p.deleteWith(o, namespace, "its namespace is being deleted", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}) || did
	}
	if len(inside) == 0 {
		namespace.contents = false
		p.cluster.updated(namespace)
		return true
	}
	return did
}

// contents returns the objects in a namespace.
func (p *simulation) contents(namespace string) []*object {
	var inside []*object
	for at, objects := range p.cluster.byLocation {
		if at.namespace != namespace {
			continue
		}
		for _, o := range objects {
			inside = append(inside, o)
		}
	}
	slices.SortFunc(inside, compare)
	return inside
}

// emptyDefinition deletes the custom resources of a CustomResourceDefinition that is being
// deleted. Then the definition can be deleted.
func (p *simulation) emptyDefinition(definition *object) (did bool) {
	instances := p.instances(definition)
	for _, o := range instances {
		did = p.deleteWith(o, definition, "its CustomResourceDefinition is being deleted", metav1.DeleteOptions{}) || did
	}
	if len(instances) == 0 {
		return p.removeFinalizer(definition, instanceCleanupFinalizer)
	}
	return did
}

// instances returns the objects of the type of a CustomResourceDefinition, which is named
// after the resource.
func (p *simulation) instances(definition *object) []*object {
	plural, group, _ := strings.Cut(definition.Name, ".")
	return p.cluster.list(schema.GroupResource{Group: group, Resource: plural}, "")
}

// deleteWith deletes an object, once, with its namespace or definition.
func (p *simulation) deleteWith(o, because *object, reason string, options metav1.DeleteOptions) bool {
	if _, before := p.deletedWith[o.id]; before {
		return false
	}
	p.deletedWith[o.id] = deletedWith{by: because.id, reason: reason}
	p.touch(o.id)
	_ = p.cluster.delete(o, options) // only fails because of preconditions
	return true
}

// removeFinalizer removes a finalizer.
func (p *simulation) removeFinalizer(o *object, finalizer string) bool {
	m := o.writable()
	m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == finalizer })
	p.cluster.updated(o)
	return true
}
