package differential

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

// unblockRecorder records references whose blockOwnerDeletion became false, and objects that
// are deleted in the foreground. Scripts replace all references of an object;
// a collector changes only this field.
type unblockRecorder struct {
	watches []watch.Interface
	wait    sync.WaitGroup

	mu    sync.Mutex // covers the fields below
	last  map[types.UID][]metav1.OwnerReference
	found map[types.UID][]types.UID // owners, by dependent

	foreground map[types.UID]bool // terminating with the finalizer foregroundDeletion
}

// watchUnblocked watches until stop is called.
func watchUnblocked(ctx context.Context, objects dynamic.Interface) (*unblockRecorder, error) {
	u := &unblockRecorder{last: map[types.UID][]metav1.OwnerReference{}, found: map[types.UID][]types.UID{}, foreground: map[types.UID]bool{}}
	for _, k := range kinds {
		w, err := objects.Resource(k.resource).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			u.stop()
			return nil, err
		}
		u.watches = append(u.watches, w)
		u.wait.Go(func() {
			for e := range w.ResultChan() {
				if o, ok := e.Object.(*unstructured.Unstructured); ok {
					u.record(o)
				}
			}
		})
	}
	return u, nil
}

func (u *unblockRecorder) stop() {
	for _, w := range u.watches {
		w.Stop()
	}
	u.wait.Wait()
}

func (u *unblockRecorder) record(o *unstructured.Unstructured) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now, uid := o.GetOwnerReferences(), o.GetUID()
	for _, was := range u.last[uid] {
		if !ptr.Deref(was.BlockOwnerDeletion, false) {
			continue
		}
		if slices.ContainsFunc(now, func(is metav1.OwnerReference) bool {
			return is.UID == was.UID && is.BlockOwnerDeletion != nil && !*is.BlockOwnerDeletion
		}) {
			u.found[uid] = append(u.found[uid], was.UID)
		}
	}
	u.last[uid] = now
	if o.GetDeletionTimestamp() != nil && slices.Contains(o.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		u.foreground[uid] = true
	}
}

// wasInForeground reports whether an object has been in foreground deletion.
func (u *unblockRecorder) wasInForeground(object types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.foreground[object]
}

// ownersOf returns the owners that the collector unblocked for a dependent. Scripts never
// write false.
func (u *unblockRecorder) ownersOf(dependent types.UID) []types.UID {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.found[dependent])
}
