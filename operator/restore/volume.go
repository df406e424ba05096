package restore

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

func volumeOf(claim *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "volumeName")
	return name
}

// cleanClaim makes a claim one that is not bound. It keeps the name of its volume if that is restored
// too, or still has the data; it would wait for one that belongs to another claim.
func (b *builder) cleanClaim(s *Step) []string {
	removeAnnotations(s.object, "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller", "volume.kubernetes.io/selected-node")
	volume := volumeOf(s.object)
	if volume == "" {
		return nil
	}
	at := Key{volumeKind, "", volume}
	_, planned := b.planned[at]
	live := b.Live[at]
	usable := live.Presence == Present && !isTerminating(live.Object)
	switch {
	case s.Key.Namespace != KeyOf(b.archived[s.FormerUID]).Namespace:
		removeFields(s.object, "spec.volumeName")
		return []string{fmt.Sprintf("gets a new, empty volume: the volume %s belongs to the claim that it was", volume)}
	case planned:
		return nil
	case usable && refersTo(live.Object, s.Key, s.FormerUID):
		s.After.Volume = volume
		return nil
	case usable:
		removeFields(s.object, "spec.volumeName")
		return []string{fmt.Sprintf("gets a new, empty volume: the volume %s belongs to another claim now", volume)}
	case live.Presence == Absent || live.Presence == Present:
		removeFields(s.object, "spec.volumeName")
		return []string{fmt.Sprintf("gets a new, empty volume: the volume %s was deleted, with its data", volume)}
	default:
		return []string{fmt.Sprintf("waits for the volume %s, which could not be read: if it was deleted, create the claim again without spec.volumeName", volume)}
	}
}

// followUp returns what an interrupted restore may not have written after it created an object.
func (b *builder) followUp(o *unstructured.Unstructured, key Key) FollowUp {
	after := FollowUp{status: runtime.DeepCopyJSONValue(o.Object["status"])}
	if volume := volumeOf(o); volume != "" && key.GroupKind == claimKind && key.Namespace == o.GetNamespace() {
		live := b.Live[Key{volumeKind, "", volume}]
		if live.Presence == Present && !isTerminating(live.Object) && refersTo(live.Object, key, o.GetUID()) {
			after.Volume = volume
		}
	}
	return after
}

// refersTo reports whether a volume is bound to a claim that was deleted.
func refersTo(volume *unstructured.Unstructured, claim Key, former types.UID) bool {
	field := func(name string) string {
		value, _, _ := unstructured.NestedString(volume.Object, "spec", "claimRef", name)
		return value
	}
	return field("namespace") == claim.Namespace && field("name") == claim.Name && field("uid") == string(former)
}
