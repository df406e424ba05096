package restore

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A standing is what has become of an owner.
type standing int

const (
	unreadable  standing = iota // it is not known whether it exists
	exists                      // with the UID of the reference
	covered                     // restored by the plan, or before
	gone                        // neither exists nor is restored
	terminating                 // being deleted
	leftOver                    // left to its controller, which creates another
	inCycle                     // one of its own dependents
	adopting                    // it sets the reference itself
	inConflict                  // it can't be restored
	outdated                    // an older object of its name
)

// owners returns the owner references that an object gets, with former UIDs. If it would be
// collected again, or if that is not known, it reports a conflict, or leaves the object
// alone, and ok is false.
func (b *builder) owners(o *unstructured.Unstructured, key Key) (refs []owner, ok bool) {
	problem, leave := "", b.LeaveUnowned
	for _, ref := range o.GetOwnerReferences() {
		s := b.standing(ref, o, key)
		switch s {
		case covered, exists:
			refs = append(refs, owner{ref, s == covered})
		case inCycle:
			b.warn(key, fmt.Sprintf("its owner %s %s is one of its own dependents: the reference is left off", ref.Kind, ref.Name))
		case adopting:
		case inConflict:
			b.blocked[o.GetUID()] = struct{}{}
			b.plan.Blocked = append(b.plan.Blocked, key)
			return nil, false
		case unreadable:
			b.conflict(o, key, fmt.Sprintf("whether its owner %s %s exists is not known: it could not be read", ref.Kind, ref.Name))
			return nil, false
		case gone, terminating, leftOver, outdated:
			what := fmt.Sprintf(missingOwner[s], ref.Kind, ref.Name)
			leave = leave || s == outdated
			if b.DropOwners {
				b.warn(key, what+": the reference is left off")
			} else {
				problem = what + ", so it would be collected again: " + advice[s]
			}
		}
	}
	switch {
	case len(refs) != 0 || problem == "": // another owner keeps it
		return refs, true
	case leave:
		b.older[o.GetUID()] = struct{}{}
		b.plan.Left = append(b.plan.Left, Note{key, "is left out: " + problem})
	default:
		b.conflict(o, key, problem)
	}
	return nil, false
}

var (
	missingOwner = map[standing]string{
		gone:        "its owner %s %s neither exists nor is restored",
		terminating: "its owner %s %s is being deleted",
		leftOver:    "its owner %s %s is left to its controller, which creates another",
		outdated:    "its owner %s %s is left out",
	}
	advice = map[standing]string{
		gone:        "restore the owner too, or use --drop-owners",
		terminating: "wait until the owner is gone, and restore it too, or use --drop-owners",
		leftOver:    "use --all to restore the owner too, or --drop-owners",
		outdated:    "restore the owner with --uid, or use --drop-owners",
	}
)

func (b *builder) standing(ref metav1.OwnerReference, o *unstructured.Unstructured, key Key) standing {
	if _, ok := b.restored[ref.UID]; ok {
		return covered
	}
	if _, ok := b.blocked[ref.UID]; ok {
		return inConflict
	}
	switch s := b.liveOwner(ref, key); {
	case s != gone:
		return s
	case adopts(ref, o):
		return adopting
	case b.marked[ref.UID] == visiting:
		return inCycle
	}
	if _, ok := b.older[ref.UID]; ok {
		return outdated
	}
	if _, ok := b.left[ref.UID]; ok {
		return leftOver
	}
	return gone
}

// liveOwner returns the standing of an owner that has the UID of a reference. One in another
// namespace than the restored object's does not count.
func (b *builder) liveOwner(ref metav1.OwnerReference, key Key) standing {
	gk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
	sure := false
	for _, at := range []Key{{gk, key.Namespace, ref.Name}, {gk, "", ref.Name}} {
		live, read := b.Live[at]
		switch {
		case live.Presence == Present && live.Object.GetUID() == ref.UID:
			if isTerminating(live.Object) {
				return terminating
			}
			return exists
		case read && live.Presence != Unknown:
			sure = true
		case read:
			return unreadable
		}
	}
	if !sure {
		return unreadable
	}
	return gone
}

// AddFormerOwners adds the former owners of an archived object to its owner references, as far as
// they are restored as well: it had lost them only because they were deleted before it.
func AddFormerOwners(o *unstructured.Unstructured, former []metav1.OwnerReference, restored map[types.UID]struct{}) {
	refs := o.GetOwnerReferences()
	for _, ref := range former {
		_, is := restored[ref.UID]
		if is && !slices.ContainsFunc(refs, func(known metav1.OwnerReference) bool { return known.UID == ref.UID }) {
			refs = append(refs, ref)
		}
	}
	o.SetOwnerReferences(refs)
}
