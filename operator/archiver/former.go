package archiver

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// maxFormer is the maximum number of objects of which former owners are remembered. Of twice as
	// many, half are forgotten at once.
	maxFormer = 10_000

	// maxFormerOwners is the maximum number of them for each object.
	maxFormerOwners = 100
)

// former remembers owner references that were removed from objects while another owner was left:
// when the object is deleted later in the same cascade, they are not among its references any
// more. The zero value is ready to use. Its methods may be called concurrently.
type former struct {
	mu     sync.Mutex // held while references are added to those of an object
	owners memory[[]metav1.OwnerReference]
}

func (f *former) add(uid types.UID, refs []metav1.OwnerReference) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all, _ := f.owners.get(uid)
	for _, ref := range refs {
		if len(all) < maxFormerOwners && !slices.ContainsFunc(all, func(known metav1.OwnerReference) bool { return known.UID == ref.UID }) {
			all = append(slices.Clip(all), ref)
		}
	}
	f.owners.put(uid, all, maxFormer)
}

// of returns the former owners of an object that are not among its owners.
func (f *former) of(object *unstructured.Unstructured) []metav1.OwnerReference {
	all, ok := f.owners.get(object.GetUID())
	if !ok {
		return nil
	}
	refs := object.GetOwnerReferences()
	return slices.DeleteFunc(slices.Clone(all), func(ref metav1.OwnerReference) bool {
		return slices.ContainsFunc(refs, func(is metav1.OwnerReference) bool { return is.UID == ref.UID })
	})
}

// archives reports whether there may be archive policies.
func (a *Archiver) archives() bool {
	s := a.Snapshot()
	return s == nil || len(s.Archives) != 0
}

// Apply implements watch.Sink: it remembers owner references that others, such as the built-in
// garbage collector, have removed because their owners are gone. The graph does not have the
// events yet.
func (a *Archiver) Apply(events ...graph.Event) {
	if !a.archives() {
		return
	}
	for _, e := range events {
		if seen, ok := e.(graph.Seen); ok {
			a.rememberRemoved(seen.Object)
		}
	}
}

func (a *Archiver) rememberRemoved(now graph.Object) {
	before, ok := a.Lookup(graph.IDOf(now.UID))
	if !ok || len(before.Object.Owners) <= len(now.Owners) {
		return
	}
	var removed []metav1.OwnerReference
	for _, ref := range before.Object.Owners {
		if !slices.ContainsFunc(now.Owners, func(is metav1.OwnerReference) bool { return is.UID == ref.UID }) && a.isGone(ref) {
			removed = append(removed, ref)
		}
	}
	if len(removed) != 0 && len(now.Owners) != 0 { // without an owner left, it was orphaned
		a.former.add(now.UID, removed)
	}
}

// isGone reports whether an owner is absent, or being deleted without orphaning its dependents.
func (a *Archiver) isGone(ref metav1.OwnerReference) bool {
	owner, ok := a.Lookup(graph.IDOf(ref.UID))
	return !ok || owner.Object.UID == "" || owner.Object.Terminating && !owner.Object.Orphan
}
