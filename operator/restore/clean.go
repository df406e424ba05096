package restore

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// ownPrefix is that of the finalizers and annotations by which Gleaner keeps track of objects.
const ownPrefix = "gleaner.dev/"

// clean removes from a step's object what only the old one had, and returns what people
// have to know about that.
func (b *builder) clean(s *Step) (warnings []string) {
	o := s.object
	o.SetNamespace(s.Key.Namespace)
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields",
		"ownerReferences", "generateName",
	} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	s.After.status = o.Object["status"]
	unstructured.RemoveNestedField(o.Object, "status")
	annotations := o.GetAnnotations()
	for key := range annotations {
		if strings.HasPrefix(key, ownPrefix) {
			delete(annotations, key)
		}
	}
	o.SetAnnotations(annotations)
	if left := removeFinalizers(o, b.ServedFinalizers); len(left) > 0 {
		warnings = append(warnings, "is restored without the finalizers that no controller is known to serve: "+strings.Join(left, ", "))
	}
	if clean := cleaners[s.Key.GroupKind]; clean != nil {
		warnings = append(warnings, clean(b, s)...)
	}
	return warnings
}

// Manifest returns an archived object without what only the old one had: owner references, addresses,
// bindings, finalizers and what the server sets. It can be applied to any cluster.
func Manifest(o *unstructured.Unstructured) *unstructured.Unstructured {
	s := Step{Key: KeyOf(o), FormerUID: o.GetUID(), object: o.DeepCopy()}
	b := newBuilder(Input{Archived: []*unstructured.Unstructured{o}})
	b.clean(&s)
	if s.Key.GroupKind == claimKind {
		removeFields(s.object, "spec.volumeName")
	}
	return s.object
}

// removeFinalizers removes the finalizers that are not served, and returns them without those
// that the collector and Gleaner add.
func removeFinalizers(o *unstructured.Unstructured, served map[string]struct{}) (left []string) {
	var kept []string
	for _, f := range o.GetFinalizers() {
		_, ok := served[f]
		_, _, archives := v1alpha1.ParseArchiveFinalizer(f)
		switch {
		case archives, strings.HasPrefix(f, ownPrefix), f == metav1.FinalizerOrphanDependents, f == metav1.FinalizerDeleteDependents:
		case ok:
			kept = append(kept, f)
		default:
			left = append(left, f)
		}
	}
	o.SetFinalizers(kept)
	return left
}

// A cleaner removes what the server or a controller has set in a step's object, and returns what
// people have to know about that.
type cleaner func(*builder, *Step) []string

// cleaners are those of the kinds that need one.
var cleaners = map[schema.GroupKind]cleaner{
	namespaceKind:      remove("spec.finalizers"),
	podKind:            cleanPod,
	claimKind:          (*builder).cleanClaim,
	volumeKind:         remove("spec.claimRef.uid", "spec.claimRef.resourceVersion"),
	serviceAccountKind: remove("secrets"),
	secretKind:         cleanSecret,
	serviceKind:        (*builder).cleanService,
	jobKind:            cleanJob,
}

// remove returns a cleaner that removes fields.
func remove(fields ...string) cleaner {
	return func(_ *builder, s *Step) []string {
		removeFields(s.object, fields...)
		return nil
	}
}

func removeFields(o *unstructured.Unstructured, fields ...string) {
	for _, field := range fields {
		unstructured.RemoveNestedField(o.Object, strings.Split(field, ".")...)
	}
}

func removeAnnotations(o *unstructured.Unstructured, keys ...string) {
	annotations := o.GetAnnotations()
	for _, key := range keys {
		delete(annotations, key)
	}
	o.SetAnnotations(annotations)
}

// cleanSecret empties the token of a service account: it is bound to the former one, and the
// token controller writes another.
func cleanSecret(_ *builder, s *Step) []string {
	if kind, _, _ := unstructured.NestedString(s.object.Object, "type"); kind != "kubernetes.io/service-account-token" {
		return nil
	}
	removeAnnotations(s.object, "kubernetes.io/service-account.uid")
	for _, key := range []string{"token", "ca.crt", "namespace"} {
		unstructured.RemoveNestedField(s.object.Object, "data", key)
	}
	return []string{"gets a new token: the former one is invalid"}
}

// cleanService removes the addresses of a Service, which others may have now, unless they are to
// be kept.
func (b *builder) cleanService(s *Step) []string {
	if b.KeepAddresses {
		return nil
	}
	var had []string
	if ip, _, _ := unstructured.NestedString(s.object.Object, "spec", "clusterIP"); ip != "" && ip != "None" {
		had = append(had, "the cluster IP "+ip)
		removeFields(s.object, "spec.clusterIP", "spec.clusterIPs")
	}
	removeFields(s.object, "spec.healthCheckNodePort")
	ports, _, _ := unstructured.NestedSlice(s.object.Object, "spec", "ports")
	for _, p := range ports {
		if port, ok := p.(map[string]any); ok && port["nodePort"] != nil {
			had = append(had, fmt.Sprintf("the node port %v", port["nodePort"]))
			delete(port, "nodePort")
		}
	}
	if len(ports) != 0 {
		_ = unstructured.SetNestedSlice(s.object.Object, ports, "spec", "ports") // its parent exists
	}
	if len(had) == 0 {
		return nil
	}
	return []string{"gets new addresses; it had " + strings.Join(had, ", ") + ": use --keep-addresses to restore it with them"}
}

// tokenVolumePrefix begins the name of the volume that the ServiceAccount admission plugin adds.
const tokenVolumePrefix = "kube-api-access-"

func cleanPod(_ *builder, s *Step) []string {
	o := s.object
	removeFields(o, "spec.nodeName", "spec.ephemeralContainers") // which the API server accepts only later
	removeTokens(o, "spec", "volumes")
	for _, containers := range []string{"containers", "initContainers"} {
		list, ok, err := unstructured.NestedSlice(o.Object, "spec", containers)
		if !ok || err != nil {
			continue
		}
		for _, c := range list {
			if container, ok := c.(map[string]any); ok {
				removeTokens(&unstructured.Unstructured{Object: container}, "volumeMounts")
			}
		}
		_ = unstructured.SetNestedSlice(o.Object, list, "spec", containers) // its parent exists
	}
	return nil
}

// removeTokens removes the entries of a list whose name is that of a token volume.
func removeTokens(o *unstructured.Unstructured, path ...string) {
	list, ok, err := unstructured.NestedSlice(o.Object, path...)
	if !ok || err != nil {
		return
	}
	list = slices.DeleteFunc(list, func(entry any) bool {
		fields, _ := entry.(map[string]any)
		name, _ := fields["name"].(string)
		return strings.HasPrefix(name, tokenVolumePrefix)
	})
	_ = unstructured.SetNestedSlice(o.Object, list, path...) // its parent exists
}

// cleanJob removes the selector and the labels that the server generates from the UID. A Job that
// had finished is suspended: its Pods would run again.
func cleanJob(_ *builder, s *Step) (warnings []string) {
	o := s.object
	if finished(s.After.status) {
		if err := unstructured.SetNestedField(o.Object, true, "spec", "suspend"); err == nil {
			warnings = append(warnings, "had finished, and is restored suspended: its Pods would run again")
		}
	}
	if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); manual {
		return warnings
	}
	removeFields(o, "spec.selector")
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
			unstructured.RemoveNestedField(o.Object, append(slices.Clone(path), label)...)
		}
	}
	return warnings
}

// finished reports whether a Job's status says so.
func finished(status any) bool {
	fields, _ := status.(map[string]any)
	conditions, _ := fields["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		kind := condition["type"]
		return condition["status"] == "True" && (kind == "Complete" || kind == "Failed")
	})
}
