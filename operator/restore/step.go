package restore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// FromAnnotation marks a restored object. Its value is JSON, and has the object's coordinates
// and its former UID, so that a restore can be repeated.
const FromAnnotation = "gleaner.dev/restored-from"

// origin is the value of FromAnnotation. An annotation that was copied to another object has
// other coordinates than that, and does not count.
type origin struct {
	Group     string    `json:"group,omitempty"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"` // where the object is now
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"` // the former one
}

func originOf(key Key, uid types.UID) origin {
	return origin{key.Group, key.Kind, key.Namespace, key.Name, uid}
}

// isRestored reports whether an object is the one that was restored for an archived one.
func isRestored(live, archived *unstructured.Unstructured) bool {
	var from origin
	if err := json.Unmarshal([]byte(live.GetAnnotations()[FromAnnotation]), &from); err != nil {
		return false
	}
	return from == originOf(KeyOf(live), archived.GetUID())
}

// A Step creates an object.
type Step struct {
	Key       Key
	FormerUID types.UID

	object *unstructured.Unstructured // owned by the step
	owners []owner
}

// An owner is an owner reference of a step's object.
type owner struct {
	metav1.OwnerReference      // with the UID of the archived object
	restored              bool // so that it has another UID now
}

// Object returns the object to create, with references to the current UIDs of its owners. Current
// has those of what was restored, by this plan or before it, by former UID. The caller
// owns the object. The error means that a restored owner is missing from current.
func (s Step) Object(current map[types.UID]types.UID) (*unstructured.Unstructured, error) {
	o := s.object.DeepCopy()
	var refs []metav1.OwnerReference
	for _, owner := range s.owners {
		ref := owner.OwnerReference
		if owner.restored {
			if ref.UID = current[ref.UID]; ref.UID == "" {
				return nil, fmt.Errorf("restore %s: its owner %s %s has to be restored first", s.Key, ref.Kind, ref.Name)
			}
		}
		refs = append(refs, ref)
	}
	o.SetOwnerReferences(refs)
	from, err := json.Marshal(originOf(s.Key, s.FormerUID))
	if err != nil {
		return nil, fmt.Errorf("restore %s: %w", s.Key, err)
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[FromAnnotation] = string(from)
	o.SetAnnotations(annotations)
	return o, nil
}

// ownPrefix is that of the finalizers and annotations by which Gleaner keeps track of objects.
const ownPrefix = "gleaner.dev/"

// clean removes from a step's object what only the old one had, and returns what people
// have to know about that.
func clean(s *Step, served map[string]struct{}) (warnings []string) {
	o := s.object
	o.SetNamespace(s.Key.Namespace)
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields", "ownerReferences", "generateName"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(o.Object, "status")
	annotations := o.GetAnnotations()
	for key := range annotations {
		if strings.HasPrefix(key, ownPrefix) {
			delete(annotations, key)
		}
	}
	o.SetAnnotations(annotations)
	var kept, left []string
	for _, f := range o.GetFinalizers() {
		_, ok := served[f]
		switch {
		case strings.HasPrefix(f, ownPrefix), f == metav1.FinalizerOrphanDependents, f == metav1.FinalizerDeleteDependents:
		case ok:
			kept = append(kept, f)
		default:
			left = append(left, f)
		}
	}
	o.SetFinalizers(kept)
	if len(left) > 0 {
		warnings = append(warnings, "is restored without the finalizers that no controller is known to serve: "+strings.Join(left, ", "))
	}
	if clean := cleaners[s.Key.GroupKind]; clean != nil {
		warnings = append(warnings, clean(o)...)
	}
	return warnings
}

// cleaners remove what the server or a controller has set in the objects of a kind.
var cleaners = map[schema.GroupKind]func(*unstructured.Unstructured) []string{
	{Kind: "Namespace"}:             remove("spec.finalizers"),
	{Kind: "Pod"}:                   cleanPod,
	{Kind: "PersistentVolumeClaim"}: cleanClaim,
	{Kind: "PersistentVolume"}:      remove("spec.claimRef.uid", "spec.claimRef.resourceVersion"),
	{Kind: "ServiceAccount"}:        remove("secrets"),
	{Group: "batch", Kind: "Job"}:   cleanJob,
}

// remove returns a cleaner that removes fields.
func remove(fields ...string) func(*unstructured.Unstructured) []string {
	return func(o *unstructured.Unstructured) []string {
		for _, field := range fields {
			unstructured.RemoveNestedField(o.Object, strings.Split(field, ".")...)
		}
		return nil
	}
}

// tokenVolumePrefix begins the name of the volume that the ServiceAccount admission plugin adds.
const tokenVolumePrefix = "kube-api-access-"

func cleanPod(o *unstructured.Unstructured) []string {
	remove("spec.nodeName")(o)
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

// cleanClaim makes a claim one that is not bound: the volume, if it still exists, refers to the
// old claim.
func cleanClaim(o *unstructured.Unstructured) (warnings []string) {
	volume, _, _ := unstructured.NestedString(o.Object, "spec", "volumeName")
	if volume != "" {
		warnings = append(warnings, fmt.Sprintf("was bound to the volume %s: its data is in the new claim only if that volume still exists and is bound to it", volume))
	}
	remove("spec.volumeName")(o)
	annotations := o.GetAnnotations()
	for _, key := range []string{"pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", "volume.kubernetes.io/selected-node"} {
		delete(annotations, key)
	}
	o.SetAnnotations(annotations)
	return warnings
}

// cleanJob removes the selector and the labels that the server generates from the UID.
func cleanJob(o *unstructured.Unstructured) []string {
	if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); manual {
		return nil
	}
	remove("spec.selector")(o)
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
			unstructured.RemoveNestedField(o.Object, append(slices.Clone(path), label)...)
		}
	}
	return nil
}
