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

// unblocked notes which references came to block no longer while they stayed.
// Scripts replace all references of an object at once, and block as they
// please; a collector changes the one bit.
type unblocked struct {
	watches []watch.Interface
	wait    sync.WaitGroup

	mu    sync.Mutex // covers what follows
	last  map[types.UID][]metav1.OwnerReference
	found map[types.UID][]types.UID // owners, by dependent
}

// watchUnblocked watches until stop is called.
func watchUnblocked(ctx context.Context, objects dynamic.Interface) (*unblocked, error) {
	u := &unblocked{last: map[types.UID][]metav1.OwnerReference{}, found: map[types.UID][]types.UID{}}
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
					u.see(o)
				}
			}
		})
	}
	return u, nil
}

func (u *unblocked) stop() {
	for _, w := range u.watches {
		w.Stop()
	}
	u.wait.Wait()
}

func (u *unblocked) see(o *unstructured.Unstructured) {
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
}

// of returns the owners that a dependent was made not to block. A script never
// writes a false, so it was the collector.
func (u *unblocked) of(dependent types.UID) []types.UID {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.found[dependent])
}
