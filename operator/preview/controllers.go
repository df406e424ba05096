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

// Finalizers that Kubernetes itself takes off, once what they wait for is so.
const (
	cleansUpInstances = "customresourcecleanup.apiextensions.k8s.io"
	protectsClaim     = "kubernetes.io/pvc-protection"
	tracksJob         = "batch.kubernetes.io/job-tracking"
)

// controllers does what the API server and kube-controller-manager do of themselves
// about objects that are being deleted. It reports whether there was anything.
func (p *preview) controllers() (did bool) {
	for _, o := range p.terminating() {
		switch {
		case o.contents:
			did = p.emptyNamespace(o) || did
		case slices.Contains(o.Finalizers, cleansUpInstances) && o.resource.GroupKind() == definitions:
			did = p.emptyDefinition(o) || did
		case slices.Contains(o.Finalizers, protectsClaim) && o.resource.GroupKind() == claims && len(p.world.in(podResource, o.Namespace)) == 0:
			did = p.takeOff(o, protectsClaim) || did
		case slices.Contains(o.Finalizers, tracksJob) && o.resource.GroupKind() == pods:
			did = p.takeOff(o, tracksJob) || did
		}
	}
	return did
}

// concerned are the objects that the preview is about: those that the deletion may
// concern, and those that something was done about after all.
func (p *preview) concerned() map[graph.ID]struct{} {
	all := maps.Clone(p.touched)
	for _, id := range p.tree.order {
		all[id] = struct{}{}
	}
	return all
}

var podResource = schema.GroupResource{Resource: "pods"}

// terminating are the objects that are being deleted and that the preview is about,
// in an order that is always the same.
func (p *preview) terminating() []*object {
	var found []*object
	for id := range p.concerned() {
		if o, ok := p.world.objects[id]; ok && o.DeletionTimestamp != nil {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, compare)
	return found
}

// emptyNamespace deletes what is in a namespace: first the pods and, once they are
// gone, the rest. Then the namespace may go.
func (p *preview) emptyNamespace(namespace *object) (did bool) {
	inside := p.contents(namespace.Name)
	if first := slices.DeleteFunc(slices.Clone(inside), func(o *object) bool { return o.resource.GroupKind() != pods }); len(first) != 0 {
		inside = first
	}
	for _, o := range inside {
		did = p.sweep(o, namespace, "its namespace is deleted", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}) || did
	}
	if len(inside) == 0 {
		namespace.contents = false
		p.world.touched(namespace)
		return true
	}
	return did
}

// contents are the objects in a namespace.
func (p *preview) contents(namespace string) []*object {
	var inside []*object
	for at, objects := range p.world.places {
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

// emptyDefinition deletes the objects of a type whose definition is deleted. Then
// the definition may go.
func (p *preview) emptyDefinition(definition *object) (did bool) {
	instances := p.instances(definition)
	for _, o := range instances {
		did = p.sweep(o, definition, "its type is deleted", metav1.DeleteOptions{}) || did
	}
	if len(instances) == 0 {
		return p.takeOff(definition, cleansUpInstances)
	}
	return did
}

// instances are the objects of the type that is defined, whose resource is what the
// definition is called by.
func (p *preview) instances(definition *object) []*object {
	plural, group, _ := strings.Cut(definition.Name, ".")
	return p.world.in(schema.GroupResource{Group: group, Resource: plural}, "")
}

// sweep deletes an object once that goes with a namespace or a definition.
func (p *preview) sweep(o, because *object, why string, options metav1.DeleteOptions) bool {
	if _, before := p.swept[o.id]; before {
		return false
	}
	p.swept[o.id] = swept{by: because.id, why: why}
	p.touch(o.id)
	_ = p.world.delete(o, options) // which fails only on preconditions
	return true
}

// takeOff takes a finalizer off.
func (p *preview) takeOff(o *object, finalizer string) bool {
	m := o.writable()
	m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == finalizer })
	p.world.touched(o)
	return true
}
