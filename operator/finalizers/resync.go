package finalizers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// minRetryDelay and maxRetryDelay bound the delay after a failed resync.
	minRetryDelay = 5 * time.Second
	maxRetryDelay = 5 * time.Minute

	// minRecountInterval and maxRecountInterval bound the interval between two counts of the
	// objects of a finalizer whose resource is being deleted.
	minRecountInterval = 3 * time.Second
	maxRecountInterval = time.Minute
)

// requestResync requests a resync.
func (s *controller) requestResync() {
	select {
	case s.resyncs <- struct{}{}:
	default:
	}
}

// resyncLoop resyncs on request, again after a failed resync, and periodically while the
// resource is being deleted.
func (s *controller) resyncLoop(ctx context.Context) {
	var retry <-chan time.Time
	failed, removed := minRetryDelay, minRecountInterval
	for {
		requested := true
		select {
		case <-ctx.Done():
			return
		case <-s.resyncs:
		case <-retry:
			requested = false
		}
		retry = nil
		progressed, err := s.resync(ctx, requested)
		switch {
		case s.stopped(ctx): // the next leader resyncs
		case err != nil:
			s.Log.Error(err, "Listing a finalizer's objects failed, retrying", "finalizer", s.finalizer().String(), "retryIn", failed.String())
			retry = time.After(failed)
			failed = min(2*failed, maxRetryDelay)
		case s.finalizer().Deleting:
			if progressed {
				removed = minRecountInterval
			}
			retry = time.After(removed)
			failed, removed = minRetryDelay, min(2*removed, maxRecountInterval)
		default:
			failed = minRetryDelay
		}
	}
}

// resync lists the finalizer's resources, and enqueues objects that are not tracked
// and tracked objects that are not listed, which may be gone. With thorough, it enqueues
// all tracked objects. It reports whether the count has changed.
func (s *controller) resync(ctx context.Context, thorough bool) (progressed bool, errs error) {
	f, began := s.finalizer(), s.Now()
	withFinalizer, listed := 0, map[types.UID]bool{}
	if f.Deleting {
		errs = s.undiscovered(f)
	}
	for _, t := range s.Catalog().Collected() {
		if !f.Selects(t.Version.GroupResource()) || f.Namespace != "" && !t.Namespaced {
			continue
		}
		n, err := s.listResource(ctx, f, t, listed)
		errs = errors.Join(errs, err)
		withFinalizer += n
	}
	if f.BuiltIn && f.Deleting && withFinalizer == 0 && errs == nil {
		withFinalizer, errs = s.listUnselected(ctx, f, listed)
	}
	s.requeueAll(func(t *pendingObject) bool { return thorough || !listed[t.key.uid] })
	if errs != nil {
		return false, errs
	}
	s.mu.Lock()
	counted := f.Deleting && began.Sub(s.removedAt) >= f.attachDelay() && !s.anyPending()
	progressed = s.withFinalizer != withFinalizer || s.counted != counted
	s.withFinalizer, s.counted = withFinalizer, counted
	s.mu.Unlock()
	if progressed {
		s.ProgressChanged()
	}
	return progressed, nil
}

// undiscovered returns an error if objects that can't be listed may have the finalizer, since
// discovery failed for their group. A group "*" is not checked: every group would match.
func (s *controller) undiscovered(f activeFinalizer) error {
	for _, rule := range f.Rules {
		for _, group := range rule.Groups {
			if s.Catalog().IsFailing(group) {
				return fmt.Errorf("discover the types of group %s: discovery failed", group)
			}
		}
	}
	return nil
}

// anyPending reports whether objects wait for the finalizer, including those that it no
// longer selects. The mutex must be held.
func (s *controller) anyPending() bool {
	for _, t := range s.pending {
		if s.active.appliesTo(t.key.namespace) {
			return true
		}
	}
	return false
}

// attachDelay returns how long objects may still be created with the finalizer after its
// resource was deleted: API servers take a moment to notice that it is no longer attached.
func (f activeFinalizer) attachDelay() time.Duration {
	if f.Attach && f.Namespace == "" {
		return minRecountInterval - time.Second
	}
	return 0
}

// listResource counts the objects of a resource that have the finalizer, and adds those that
// wait for it to listed.
func (s *controller) listResource(ctx context.Context, f activeFinalizer, t catalog.Resource, listed map[types.UID]bool) (withFinalizer int, err error) {
	client := s.Client.Resource(t.Version).Namespace(f.Namespace)
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	err = list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		meta, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("listed a %T", item)
		}
		o := graph.ObjectOf(t.GroupVersionKind(), meta)
		hasFinalizer := slices.Contains(o.Finalizers, s.entry)
		if hasFinalizer {
			withFinalizer++
		}
		switch {
		case o.Terminating && hasFinalizer:
			if listed[o.UID] = true; !s.isPending(o.UID) {
				s.enqueuePending(o)
			}
		case !o.Terminating && f.needsWrite(hasFinalizer):
			s.enqueue(keyOf(o))
		}
		return nil
	})
	if err != nil { // a type that is no longer served will leave the catalog
		return withFinalizer, fmt.Errorf("list %s: %w", t.Version.GroupResource(), err)
	}
	return withFinalizer, nil
}
