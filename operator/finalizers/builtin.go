package finalizers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/policies"
)

// handleTimeout bounds one call of a Handler.
const handleTimeout = time.Minute

// handle handles an object that waits for a built-in finalizer: it is released once the Handler
// is done with the state of it that was read, or if the finalizer does not select it.
func (v *reconciler) handle(ctx context.Context) time.Duration {
	selected, err := v.isHandled(ctx)
	switch {
	case err != nil:
		return v.finishWithError(ctx, Outcome{}, err)
	case !selected:
		return v.forceRelease(ctx, fmt.Sprintf("%s does not select the object", v.f))
	case v.f.Handler == nil:
		v.item.evaluatedBy = nil
		return v.finish(ctx, Outcome{Reason: NotReady, Message: v.f.NotReadyReason}, 0)
	}
	t := &v.item
	if t.evaluatedBy != nil && t.evaluatedBy.Equivalent(v.f.Finalizer) && v.Now().Before(t.nextRetry) {
		return v.postponeUntil(ctx, t.nextRetry) // a failure is retried at the same pace whatever happens to the object
	}
	t.evaluatedBy = v.f.Finalizer
	done, err := v.callHandler(ctx)
	switch {
	case v.stopped(ctx):
		return minRetryDelay // the next leader handles it again
	case err != nil:
		return v.finishWithError(ctx, Outcome{}, err)
	case v.outdated():
		return v.restart(ctx, Outcome{})
	}
	return v.removeFinalizer(ctx, Outcome{Reason: Done, Message: done})
}

// isHandled reports whether a built-in finalizer selects the object.
func (v *reconciler) isHandled(ctx context.Context) (bool, error) {
	if !v.f.appliesTo(v.key.namespace) {
		return false, nil // it was copied from another namespace
	}
	return v.isSelected(ctx)
}

// callHandler calls the Handler. If that takes long, the object is reported as stuck.
func (v *reconciler) callHandler(ctx context.Context) (string, error) {
	defer v.reportSlow(v.f.String())()
	limited, cancel := context.WithTimeout(ctx, handleTimeout)
	defer cancel()
	return v.f.Handler.Handle(limited, v.object)
}

// checkUnchanged returns an error if a built-in finalizer would be removed from an object in
// another state than the one that was read: meanwhile it may have been deleted, or selected.
func (v *reconciler) checkUnchanged(resourceVersion string) error {
	if v.f.BuiltIn && resourceVersion != v.object.GetResourceVersion() {
		return errChanged
	}
	return nil
}

// handleAgain has an object handled again that has changed meanwhile.
func (v *reconciler) handleAgain(ctx context.Context) time.Duration {
	if v.object.GetDeletionTimestamp() == nil {
		return restartDelay
	}
	return v.restart(ctx, Outcome{})
}

// withdraw removes a built-in finalizer from an object that is not being deleted. In a namespace
// that is being deleted it stays: its resource may be deleted before the objects that it is for.
func (v *reconciler) withdraw(ctx context.Context) time.Duration {
	if v.f.Deleting && v.f.Namespace != "" {
		ends, err := v.namespaceEnds(ctx)
		switch {
		case err != nil:
			return v.retryLive(ctx, Outcome{Reason: HostError, Message: err.Error(), Err: err})
		case ends:
			return 0 // resyncs find it again
		}
	}
	return v.forceRelease(ctx, fmt.Sprintf("%s no longer applies", v.f))
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// namespaceEnds reports whether the namespace of the finalizer's resource, which is being
// deleted, was so before. What was read after the resource was seen terminating says that for
// good.
func (v *reconciler) namespaceEnds(ctx context.Context) (bool, error) {
	v.mu.Lock()
	known := v.namespaceEnding
	v.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	live, err := v.Reader.Get(ctx, policies.ServiceAccount{}, namespaces, "", v.f.Namespace)
	if err != nil {
		return false, fmt.Errorf("read namespace: %w", err)
	}
	ends := live.GetDeletionTimestamp() != nil
	v.mu.Lock()
	defer v.mu.Unlock()
	v.namespaceEnding = &ends
	return ends, nil
}

// listUnselected counts the objects with a built-in finalizer of the types that its rules do not
// select: they may have selected them before, and its resource stays until no object needs it.
func (s *controller) listUnselected(ctx context.Context, f activeFinalizer, listed map[types.UID]bool) (withFinalizer int, errs error) {
	for _, t := range s.Catalog().Collected() {
		if f.Selects(t.Version.GroupResource()) || f.Namespace != "" && !t.Namespaced {
			continue
		}
		n, err := s.listResource(ctx, f, t, listed)
		errs = errors.Join(errs, err)
		withFinalizer += n
	}
	return withFinalizer, errs
}
