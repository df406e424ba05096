package restore

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	return restoredFrom(live) == originOf(KeyOf(live), archived.GetUID())
}

// restoredFrom returns the value of an object's annotation; if it is missing or invalid, the zero
// value, which is that of no object.
func restoredFrom(live *unstructured.Unstructured) origin {
	var from origin
	if err := json.Unmarshal([]byte(live.GetAnnotations()[FromAnnotation]), &from); err != nil {
		return origin{}
	}
	return from
}

// A Step creates an object.
type Step struct {
	Key       Key
	FormerUID types.UID
	After     FollowUp

	object *unstructured.Unstructured // owned by the step
	owners []owner
}

// A FollowUp is what is written after an object was created.
type FollowUp struct {
	// Volume is the PersistentVolume that still has the data of a restored claim, and refers to
	// the former claim. Empty: there is none.
	Volume string

	status any // as archived; nil: it has none
}

// Status returns an object with its archived status, and whether it has one. The caller owns it.
func (f FollowUp) Status(current *unstructured.Unstructured) (*unstructured.Unstructured, bool) {
	if f.status == nil {
		return nil, false
	}
	o := current.DeepCopy()
	o.Object["status"] = runtime.DeepCopyJSONValue(f.status)
	return o, true
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

// Restores reports whether an object is the one that the step creates, from this run or an earlier one.
func (s Step) Restores(live *unstructured.Unstructured) bool {
	return !isTerminating(live) && KeyOf(live) == s.Key && restoredFrom(live) == originOf(s.Key, s.FormerUID)
}
